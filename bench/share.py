"""Shares the parts of models that fail on TensorRT-RTX, and tries what the pages say: `trtconv build` and Polygraphy.

Usage: python bench/share.py [--only NAME] [--json bench/results/share.json]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.failing_models import MODELS, SECRET, FailingModel  # noqa: E402

_TRTCONV = Path(sys.executable).with_name("trtconv")
_POLYGRAPHY = [sys.executable, "-c", "import sys; from polygraphy.tools import main; sys.exit(main())"]
_SECONDS = 300


def main() -> int:
    """Prints a row a model; returns 1 where a part does not fail alike, is large, or has a secret in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = {make.__name__: _row(make()) for make in MODELS if args.only in (None, make.__name__)}
    for name, row in rows.items():
        sys.stdout.write(f"{name:24} {json.dumps(row)}\n")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    fine = [row["fails_alike"] and row["bytes"] < 100_000 and not row["secrets"] for row in rows.values()]
    return 0 if all(fine) else 1


def _row(failing: FailingModel) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        onnx.save(failing.proto, here / "whole.onnx")
        begin = time.perf_counter()
        words = ["share", "whole.onnx", "-o", "part.onnx", "--target", "rtx", "--format", "json", "-q", *failing.flags]
        report = json.loads(_run([str(_TRTCONV), *words], here).stdout)
        seconds = time.perf_counter() - begin
        if "output" not in report:
            return {"code": failing.code, "fails_alike": False, "error": report.get("error"), "bytes": 0, "secrets": []}
        files = {name: (here / name).read_bytes() for name in ("part.onnx", "part.share.md")}
        return {
            "code": report["failure"]["code"],
            "nodes": report["nodes"],
            "bytes_before": (here / "whole.onnx").stat().st_size,
            "bytes": len(files["part.onnx"]),
            "trials": report["trials"],
            "seconds": round(seconds, 1),
            "fails_alike": report["failure"]["code"] == failing.code and _fails(report["commands"]["trtconv"], here),
            "polygraphy_fails": report["commands"]["polygraphy"] and _fails(report["commands"]["polygraphy"], here),
            "secrets": [name for name, data in files.items() if SECRET.lower().encode() in data.lower()],
        }


def _fails(line: str, folder: Path) -> bool:
    """Whether a line of the page fails, in the folder of the part."""
    words = shlex.split(line)
    environment = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    program = _POLYGRAPHY if words[0] == "polygraphy" else [str(_TRTCONV)]
    return _run([*program, *words[1:]], folder, environment).returncode != 0


def _run(words: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> Any:
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
