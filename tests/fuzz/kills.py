"""Kills builds at random moments: the parent, the child, or both. No engine may be damaged, nothing left behind.

python tests/fuzz/kills.py [300] [--seed N]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[1,1,4,4] x) => (float[1,1,8,8] y)
    <float[1,1,2,2] w = {1,2,3,4}> { y = ConvTranspose <strides = [2,2]> (x, w) }"""
COMMAND = [sys.executable, "-m", "trtconv", "build", "m.onnx", "--target", "rtx", "-o", "m.engine", "--force", "-q"]
_ORPHAN_SECONDS = 10.0
_LAST_PART = 0.35
"""Share of kills that wait until the file is being written."""


def damage(folder: Path) -> str:
    """Returns what is wrong with the engine and its report, or ''."""
    engine, report = folder / "m.engine", folder / "m.engine.json"
    try:
        said = json.loads(report.read_text())["engine"]["sha256"]
        return "" if hashlib.sha256(engine.read_bytes()).hexdigest() == said else "engine and report are of two builds"
    except (OSError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"


def kill_once(r: random.Random, folder: Path, longest: float) -> str:
    """Starts a build and kills it; returns what was killed."""
    process = subprocess.Popen(
        COMMAND, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + r.uniform(0, longest)
    writing = r.random() < _LAST_PART
    while time.monotonic() < deadline or writing:
        if process.poll() is not None or (writing and any(folder.glob(".*.part"))):
            break
        time.sleep(0.0005)
    children = _children(process.pid)
    what = r.choice(["parent", "child", "both", "both"])
    for pid in ([process.pid] if what != "child" else []) + (children if what != "parent" else []):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while any(_alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    orphans = sum(_alive(pid) for pid in children)
    return f"{what}{' (orphan)' if orphans else ''}{' while writing' if writing else ''}"


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def main() -> int:
    """Returns 1 where something was damaged or left."""
    import onnx.parser

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int, nargs="?", default=300)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    r, counts, damaged, left, failed, parts = random.Random(arguments.seed), Counter[str](), 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "m.onnx").write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
        os.environ["TMPDIR"] = name
        started = time.monotonic()
        subprocess.run(COMMAND, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        longest = time.monotonic() - started
        for _ in range(arguments.kills):
            counts[kill_once(r, folder, longest)] += 1
            parts += bool(list(folder.glob(".*")))
            damaged += bool(damage(folder))
            done = subprocess.run(
                COMMAND, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
            )
            failed += done.returncode != 0
            damaged += bool(damage(folder))
            kept = {path.name for path in folder.iterdir() if not path.name.startswith("trtconv-crash")}
            left += bool(kept - {"m.onnx", "m.engine", "m.engine.json"})
            sys.stdout.write(f"{counts.total()}: {damaged} damaged, {left} left, {failed} failed\n")
            sys.stdout.flush()
    orphans = sum(number for what, number in counts.items() if "orphan" in what)
    sys.stdout.write(f"{dict(counts)}\n{parts} kills left a .part file until the next build\n")
    sys.stdout.write(f"{arguments.kills} kills: {damaged} damaged engines, {left} left-overs after the next build, ")
    sys.stdout.write(f"{failed} failed next builds, {orphans} orphans\n")
    return 1 if damaged or left or failed or orphans else 0


if __name__ == "__main__":
    sys.exit(main())
