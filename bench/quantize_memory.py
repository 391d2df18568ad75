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
from measuring import PYTHON, TRTCONV
from numpy.typing import NDArray
from onnx import helper, numpy_helper

_SIZE = 32

_ONNX_RUNTIME = """
import sys
import numpy as np
from pathlib import Path
from onnxruntime import quantization as q
class Reader(q.CalibrationDataReader):
    def __init__(self, folder): self.files = iter(sorted(Path(folder).glob("*.npz")))
    def get_next(self):
        file = next(self.files, None)
        return None if file is None else dict(np.load(file))
q.quantize_static(sys.argv[1], sys.argv[3], Reader(sys.argv[2]), quant_format=q.QuantFormat.QDQ, per_channel=True,
    activation_type=q.QuantType.QInt8, weight_type=q.QuantType.QInt8,
    extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False})
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
            "onnxruntime": [PYTHON, "-c", _ONNX_RUNTIME, model, data, str(place / "theirs.onnx")],
        }
        size = Path(model).stat().st_size / 2**20
        for name, command in ways.items():
            if args.only in (None, name):
                megabytes, seconds = _measured(command)
                rows[name] = {"megabytes": round(megabytes), "of_model": round(megabytes / size, 2), "seconds": seconds}
                sys.stdout.write(f"{name:20} {json.dumps(rows[name])}\n")
                sys.stdout.flush()
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
    random = np.random.default_rng(5)
    widths = _widths(megabytes)
    graph = _Graph(random)
    name, before = "x", 8
    for width in widths:
        name, before = graph.layer("Conv", name, (width, before, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]), width
    for width in [*reversed(widths[:-1]), 8]:
        name, before = graph.layer("ConvTranspose", name, (before, width, 2, 2), strides=[2, 2]), width
    graph.nodes[-1].output[0] = "y"
    io = [helper.make_tensor_value_info(each, 1, [1, 8, _SIZE, _SIZE]) for each in ("x", "y")]
    made = helper.make_graph(graph.nodes, "net", io[:1], io[1:], graph.weights)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(folder / "float.onnx"))
    (folder / "samples").mkdir()
    for number in range(samples):
        np.savez(folder / "samples" / f"{number:03}.npz", x=_normal(random, (1, 8, _SIZE, _SIZE)))


def _widths(megabytes: int) -> list[int]:
    """Returns the channels of five layers, so that all weights are of about this size."""
    for base in range(8, 4096, 8):
        widths = [base, 2 * base, 4 * base, 8 * base, 8 * base]
        pairs = list(zip([8, *widths], [*widths, 8], strict=False))[:-1]
        elements = sum(a * b * (9 + 4) for a, b in pairs)
        if elements * 4 >= megabytes << 20:
            return widths
    raise SystemExit(f"{megabytes} MB are too much")


class _Graph:
    """Layers, each with a rectifier behind."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def layer(self, op: str, name: str, shape: tuple[int, ...], **attributes: list[int]) -> str:
        number = len(self.weights)
        fan = shape[1] * 9 if op == "Conv" else shape[0]
        values = _normal(self._random, shape) * np.float32(np.sqrt(2 / fan))
        self.weights.append(numpy_helper.from_array(values, f"w{number}"))
        self.nodes.append(helper.make_node(op, [name, f"w{number}"], [f"c{number}"], f"layer{number}", **attributes))
        self.nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"], f"relu{number}"))
        return f"r{number}"


def _normal(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return random.standard_normal(shape, dtype=np.float32)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        _make(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main())
