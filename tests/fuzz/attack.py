"""Replays recorded attacks: files that once ran code, forged lines, took all memory or ended in an internal error.

python tests/fuzz/attack.py [FOLDER or ZIP] [--only TEXT]     default: tests/data/attack/cases.zip
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import Fault, Worker, judge

CASES = Path(__file__).resolve().parents[1] / "data" / "attack" / "cases.zip"
QUIET = ("--target", "rtx", "-q")
_BUILD = ("build", "m.onnx", *QUIET, "-o", "e.engine", "--force")
_REWRITE = ("rewrite", "m.onnx", *QUIET, "-o", "r.onnx")
_SIZED = {
    "concat_doubling_40": ("--dim", "n=2"),
    "concat_doubling_28": ("--dim", "n=2"),
    "squaring_64": ("--dim", "n=2:4:8"),
}
_SPARSE = {"ext_sparse_6G_q": ("sparse6G.data", 6 << 30), "ext_sparse_800G": ("sparse1T.data", 1 << 40)}
_MADE = ("out", "r.onnx", "r.onnx.data", "e.engine", "e.engine.json", "p.onnx", "p.onnx.data", "tmp")
"""What commands are asked to write."""


class Attack(NamedTuple):
    """One command line in a folder of hostile files."""

    name: str
    folder: Path
    args: tuple[str, ...]


def unpacked(source: Path, into: Path) -> Path:
    """Copies recorded cases to where they may be written to."""
    if source.is_dir():
        shutil.copytree(source, into, symlinks=True)
    else:
        with zipfile.ZipFile(source) as file:
            file.extractall(into)
    for path in (into, *into.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    return into


def attacks(root: Path) -> Iterator[Attack]:
    """Yields the command lines of a folder of recorded cases."""
    for path in sorted(root.glob("fuzz/*/args.json")):
        yield Attack(path.parent.name, path.parent, tuple(json.loads(path.read_text())["args"]))
    for path in sorted((root / "dos").glob("*.onnx")):
        folder = _moved(path)
        if path.stem in _SPARSE:
            name, size = _SPARSE[path.stem]
            with (folder / name).open("wb") as data:
                data.truncate(size)
        dims = _SIZED.get(path.stem, ())
        lines = [("check", "m.onnx", *dims, *QUIET), ("sizes", "m.onnx", *dims), ("explain", "m.onnx"), _REWRITE]
        for args in (*lines, (*_BUILD, *dims), (*_BUILD, *dims, "--precision", "fp16")):
            yield Attack(path.stem, folder, args)
    for path in (*sorted(root.glob("*.onnx")), *sorted(root.glob("rce/*/model.onnx"))):
        folder = path.parent if "rce" in path.parts else _moved(path)
        for args in _on_model(path.name if "rce" in path.parts else "m.onnx"):
            yield Attack(path.stem if folder != path.parent else path.parent.name, folder, args)
    yield from _reports(root)


def _moved(path: Path) -> Path:
    folder = path.with_suffix("")
    folder.mkdir()
    return Path(shutil.move(path, folder / "m.onnx")).parent


def _on_model(name: str) -> list[tuple[str, ...]]:
    forms = ("text", "json", "sarif", "junit", "github")
    return [
        *(("check", name, *QUIET, "--format", form) for form in forms),
        ("check", name, "--target", "rtx", "--dim", "nope=1"),
        ("build", name, *QUIET, "-o", "e.engine", "--force"),
        ("rewrite", name, *QUIET, "-o", "r.onnx"),
        ("sizes", name),
        ("explain", name, "0"),
        ("inspect", name),
    ]


def _reports(root: Path) -> Iterator[Attack]:
    for path in sorted((root / "report").glob("*.json")):
        folder = path.parent / path.name.partition(".")[0]
        folder.mkdir()
        shutil.move(path, folder / "e.engine.json")
        (folder / "e.engine").write_bytes(b"no engine")
        shutil.copy(Path(__file__).resolve().parents[2] / "models" / "unet.onnx", folder / "m.onnx")
        for args in (("inspect", "e.engine"), ("verify", "e.engine", "m.onnx"), ("inspect", "e.engine.json")):
            yield Attack(f"report {path.stem}", folder, args)
        dims = ("--dim", "batch=1", "--dim", "height=64", "--dim", "width=64")
        yield Attack(f"report {path.stem}", folder, ("build", "m.onnx", *QUIET, "-o", "e.engine", *dims))


def replay(attack: Attack, worker: Worker) -> list[Fault]:
    """Runs one command line; returns everything that is wrong with what came of it."""
    tmp = attack.folder / "tmp"
    tmp.mkdir(exist_ok=True)
    before = set(_files(attack.folder))
    answer = worker.answer(attack.args, attack.folder, whole=True, temporary="tmp")
    if answer is None:
        return [Fault(attack.name, attack.args, "the worker itself died", "")]
    faults = judge(attack.name, attack.args, answer)
    left = sorted(set(_files(attack.folder)) - before)
    strange = [name for name in left if name.partition(os.sep)[0] not in _MADE or name.endswith(".part")]
    strange += [name for name in left if name.startswith("tmp") and not name.startswith("tmp/trtconv-crash")]
    if strange:
        faults.append(Fault(attack.name, attack.args, f"left behind: {strange[:5]}", answer["stderr"]))
    shutil.rmtree(tmp)
    return faults


def _files(folder: Path) -> Iterator[str]:
    for where, _, names in os.walk(folder):
        for name in names:
            yield os.path.relpath(os.path.join(where, name), folder)  # noqa: PTH118


def main() -> int:
    """Returns 1 where something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", default=CASES)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    number, wrong = 0, 0
    with tempfile.TemporaryDirectory() as folder, Worker() as worker:
        for attack in attacks(unpacked(arguments.source, Path(folder) / "cases")):
            if arguments.only not in f"{attack.name} {' '.join(attack.args)}":
                continue
            number += 1
            for fault in replay(attack, worker):
                wrong += 1
                sys.stdout.write(f"{fault}\n\n")
                sys.stdout.flush()
    sys.stdout.write(f"{number} commands, {wrong} faults\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
