"""`trtconv build` with its default proof against a script of a few lines (bench/bare.py), over real exports.

    python bench/build_cost.py FOLDER --export [--only TEXT]   writes the files; needs the packages of
                                                               `make test-architectures`
    python bench/build_cost.py FOLDER [--only TEXT] [--rounds 5] [-o bench/results/build-cost.json]

The networks are those of bench/export_architectures.py, of public packages and with random weights, at their own size,
written by both of PyTorch's exporters. Whole processes take turns: raw, `trtconv build --prove none`, and `trtconv
build` as it is. Told are medians of wall time, and of processor time (of all processes of a command together, on
Linux), which a busy machine changes less. A row is good where the default takes at most 1.2 times raw and 0.25 s; ends
with 1 where one is not, or none is there.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from measuring import PYTHON, ROOT, TRTCONV, median

RESULTS = ROOT / "bench" / "results" / "build-cost.json"
TIMES, SECONDS = 1.2, 0.25
WAYS = ("raw", "none", "default")
_PR_SET_CHILD_SUBREAPER = 36
Row = dict[str, Any]


def export(folder: Path, only: str) -> None:
    """Writes each network by both exporters, as far as they can; what is there already is kept."""
    import torch
    from export_architectures import CRASHES
    from export_networks import cases

    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for case in cases():
        name, shape = case.name, case.shape
        if only not in name or name in CRASHES or case.lengths:
            continue
        for exporter in ("dynamo", "torchscript"):
            path = folder / f"{re.sub(r'[^a-zA-Z0-9]+', '-', name).lower()}.{exporter}.onnx"
            if path.exists():
                continue
            torch.manual_seed(0)
            try:
                module = case.make().eval()
                with contextlib.redirect_stdout(sys.stderr), torch.no_grad():
                    dynamo = exporter == "dynamo"
                    torch.onnx.export(module, (torch.rand(shape),), str(path), dynamo=dynamo, external_data=False)
            except Exception as error:
                path.unlink(missing_ok=True)
                print(f"{path.name}: {type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)
            else:
                print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB", flush=True)


def commands(model: Path, engine: str) -> dict[str, list[str]]:
    """Returns the commands that are compared."""
    build = [TRTCONV, "build", str(model), "--target", "rtx", "--force", "-o", engine]
    bare = [PYTHON, str(ROOT / "bench" / "bare.py"), "build", str(model), engine]
    return {"raw": bare, "none": [*build, "--prove", "none"], "default": build}


def run(command: list[str]) -> tuple[float, float, str]:
    """Runs a command; returns wall seconds, processor seconds of all its processes, and why it failed."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - started
    # trtconv ends without waiting for the process that did the work: as its new parent, this one is told what it took.
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, processor, (done.stderr or done.stdout)[-300:] if done.returncode else ""


def measure(model: Path, rounds: int) -> Row:
    """Returns what builds of a file cost."""
    wall: dict[str, list[float]] = {way: [] for way in WAYS}
    processor: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        tasks = commands(model, f"{folder}/m.engine")
        for turn in range(rounds + 1):
            for way, command in tasks.items():
                *costs, failure = run(command)
                if failure:
                    return {"name": model.stem, "failed": {way: failure}}
                if turn or rounds == 1:
                    wall[way].append(costs[0])
                    processor[way].append(costs[1])
        report = json.loads(Path(f"{folder}/m.engine.json").read_text(encoding="utf-8"))
    seconds = {way: round(median(each), 3) for way, each in wall.items()}
    limit = TIMES * seconds["raw"] + SECONDS
    return {
        "name": model.stem,
        "bytes": model.stat().st_size,
        "seconds": seconds,
        "processor": {way: round(median(each), 3) for way, each in processor.items()},
        "stages": report["seconds"],
        "proven": [report["proof"]["pieces"]["proven"], report["proof"]["pieces"]["of"]],
        "ratio": round(seconds["default"] / seconds["raw"], 3),
        "good": seconds["default"] <= limit,
    }


def line(row: Row) -> str:
    """Returns a row as text."""
    if "failed" in row:
        return f"{row['name']:<52} {row['failed']}"
    cells = [f"{row[what][way]:6.2f}" for what in ("seconds", "processor") for way in WAYS]
    verdict = "ok" if row["good"] else "TOO MUCH"
    return (
        f"{row['name']:<52} {row['bytes'] / 1e6:7.2f} {' '.join(cells)} {row['ratio']:5.2f} {row['proven']} {verdict}"
    )


def main() -> int:
    """Writes the files, or measures them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--export", action="store_true", help="write the files")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.export:
        export(given.folder, given.only)
        return 0
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rows: list[Row] = []
    print(f"{'':<52} MB, then raw, none, default: wall s, processor s; default / raw; pieces proven", flush=True)
    for model in sorted(given.folder.glob("*.onnx")):
        if given.only in model.name:
            rows.append(measure(model, given.rounds))
            print(line(rows[-1]), flush=True)
    measured = [row for row in rows if "failed" not in row]
    ratios = sorted(row["ratio"] for row in measured)
    heading = {"rounds": given.rounds, "cores": os.cpu_count(), "python": platform.python_version()}
    summary = {"files": len(measured), "good": sum(row["good"] for row in measured)}
    if ratios:
        summary |= {"median": ratios[len(ratios) // 2], "most": ratios[-1]}
    given.output.write_text(json.dumps({**heading, **summary, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(summary)
    return 0 if measured and all(row["good"] for row in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
