"""Peak memory and time of `trtconv quantize` on a network of 231 MB, beside ONNX Runtime's quantiser.

Usage: python bench/quantize_memory.py [--megabytes 231] [--samples 24] [--method auto] [--only NAME] [--json FILE]

The network is an encoder and a decoder of random weights; each way runs once, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from cost_networks import Writer
from measuring import PYTHON, ROOT, TRTCONV

_SIZE = 32
_ONNX_RUNTIME = f"""
import sys, pathlib
sys.path.insert(0, {str(ROOT / "bench")!r})
from quantize import by_onnxruntime
by_onnxruntime(pathlib.Path(sys.argv[1]), "MinMax")
"""


def main() -> int:
    """Prints a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=231)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--only")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        # In a process of its own: a child's peak cannot be below what its parent held when it started.
        begin = [PYTHON, __file__, "--make", folder, str(args.megabytes), str(args.samples)]
        subprocess.run(begin, check=True)
        model, data = str(place / "float.onnx"), str(place / "samples")
        ours = [TRTCONV, "quantize", model, "--data", data, "--target", "rtx", "--no-cache", "-q", "--tolerance", "9"]
        ways = {
            "trtconv": [*ours, "--method", args.method, "-o", str(place / "ours.onnx")],
            "trtconv, min-max": [*ours, "--method", "min-max", "-o", str(place / "ours2.onnx")],
            "onnxruntime": [PYTHON, "-c", _ONNX_RUNTIME, folder],
        }
        size = Path(model).stat().st_size / 2**20
        for name, command in ways.items():
            if args.only in (None, name):
                megabytes, seconds = _measured(command)
                rows[name] = {"megabytes": round(megabytes), "of_model": round(megabytes / size, 2), "seconds": seconds}
                print(f"{name:20} {json.dumps(rows[name])}", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"model_megabytes": round(size, 1), **rows}, indent=1) + "\n")
    return 0


def _measured(command: list[str]) -> tuple[float, float]:
    """Runs a command and returns its peak memory in MB, that of its largest process, and its seconds."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    return usage.ru_maxrss / 1024, round(time.perf_counter() - begin, 1)


def _make(folder: Path, megabytes: int, samples: int) -> None:
    """Writes the network and its samples."""
    widths = _widths(megabytes)
    w = Writer((1, 8, _SIZE, _SIZE))
    name, before = "x", 8
    for width in widths:
        name, before = w.op("Relu", w.conv(name, before, width, 3, 2)), width
    for width in [*reversed(widths[:-1]), 8]:
        name, before = w.op("Relu", w.up(name, before, width)), width
    onnx.save_model(w.model(name, 4), str(folder / "float.onnx"))
    (folder / "samples").mkdir()
    for number in range(samples):
        values = w.random.standard_normal((1, 8, _SIZE, _SIZE), np.float32)
        np.savez(folder / "samples" / f"{number:03}.npz", x=values)


def _widths(megabytes: int) -> list[int]:
    """Returns the channels of five layers, so that all weights are of about this size."""
    for base in range(8, 4096, 8):
        widths = [base, 2 * base, 4 * base, 8 * base, 8 * base]
        pairs = list(zip([8, *widths], [*widths, 8], strict=False))[:-1]
        elements = sum(a * b * (9 + 4) for a, b in pairs)
        if elements * 4 >= megabytes << 20:
            return widths
    raise SystemExit(f"{megabytes} MB are too much")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        _make(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main())
