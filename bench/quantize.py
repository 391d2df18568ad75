"""How far int8 networks are from the float ones: trtconv's beside other recipes, on the same samples.

    python bench/quantize.py [--seed N] [--only NAME,...] [--modelopt PYTHON] [--out FOLDER]        needs no GPU

Each of the networks of quantize_networks.py is quantised from 32 samples by trtconv, by its --attention, by ONNX
Runtime's quantiser in the form that TensorRT takes (symmetric, per channel; by the largest values and by percentile),
and by ModelOpt, where --modelopt names an interpreter that has it. A row has the error on 12 samples of another seed
(root of the mean squared difference over that of the float outputs) and the share of multiply-adds of layers whose
weight is int8. Writes FOLDER/quantize-int8.json after every network. Exit status: 0 where trtconv is nearest, or within
3 % of the nearest, in all; else 1.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "tests")]

import quantize_networks as networks  # noqa: E402

_CALIBRATING, _HELD_OUT = 32, 12
_NEAR = 1.03
OURS, ATTENTION = "trtconv", "trtconv --attention"
Row = dict[str, Any]
MODELOPT = """
import sys, numpy
from modelopt.onnx.quantization import quantize
folder = sys.argv[1]
quantize(folder + "/float.onnx", quantize_mode="int8", calibration_data=dict(numpy.load(folder + "/calibration.npz")),
         output_path=folder + "/int8.onnx", log_level="ERROR", calibration_eps=["cpu"], high_precision_dtype="fp32")
"""


def trtconv(folder: Path, attention: bool = False) -> None:
    """Quantises as `trtconv quantize` does."""
    from trtconv.core.requests.quantize import QuantizeRequest
    from trtconv.core.target import Target
    from trtconv.pipeline.quantizing import quantize

    files = folder / "float.onnx", folder / "int8.onnx", str(folder / "samples")
    quantize(QuantizeRequest(*files, target=Target("rtx", (1, 7)), tolerance=9.0, attention=attention))


class _Reader:
    """Hands samples to ONNX Runtime's quantiser."""

    def __init__(self, folder: Path) -> None:
        self._left = iter(sorted((folder / "samples").iterdir()))

    def get_next(self) -> dict[str, Any] | None:
        file = next(self._left, None)
        return None if file is None else dict(np.load(file))


def by_onnxruntime(folder: Path, method: str) -> None:
    """Quantises with the settings of ONNX Runtime's quantiser that TensorRT takes."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(io.StringIO()):
        quantize_static(
            str(folder / "float.onnx"),
            str(folder / "int8.onnx"),
            _Reader(folder),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=getattr(CalibrationMethod, method),
            extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
        )


def modelopt(folder: Path, python: str) -> None:
    """Quantises with ModelOpt's ONNX path, as it does by default.

    Raises:
        RuntimeError: It fails, or is not installed.
    """
    files = sorted((folder / "samples").iterdir())
    np.savez(folder / "calibration.npz", x=np.concatenate([np.load(file)["x"] for file in files]))
    done = subprocess.run([python, "-c", MODELOPT, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2][:300])


def outputs(model: onnx.ModelProto, feeds: list[Row]) -> list[Any]:
    """Returns the output of each sample on ONNX Runtime, without optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, each)[0].astype(np.float64) for each in feeds]


def share(model: onnx.ModelProto, feeds: Row) -> float:
    """Returns the share of the multiply-adds of layers with two matrices or a kernel that reads int8 for both."""
    from trtconv.graph.model import OnnxModel
    from trtconv.precision.quantize.operators import WEIGHTED, multiply_adds
    from trtconv.precision.quantize.sessions import Probe

    nodes = [node for node in model.graph.node if node.op_type in WEIGHTED]
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    wanted = dict.fromkeys(name for node in nodes for name in (*node.input[:2], node.output[0]) if name in makers)
    values = Probe(OnnxModel(model, Path("net.onnx")), tuple(wanted)).run(feeds)
    shapes = {name: array.shape for name, array in (values | feeds).items()}
    shapes |= {each.name: tuple(each.dims) for each in model.graph.initializer}
    counts = [(node, multiply_adds(node, shapes)) for node in nodes]
    inside = sum(n for node, n in counts if all(makers.get(x) == "DequantizeLinear" for x in node.input[:2]))
    return inside / max(1, sum(n for _, n in counts))


def recipes(python: str | None) -> dict[str, Callable[[Path], None]]:
    """Returns name to what makes int8.onnx of float.onnx and the folder "samples" beside it."""
    return {
        OURS: trtconv,
        ATTENTION: lambda folder: trtconv(folder, attention=True),
        "onnxruntime": lambda folder: by_onnxruntime(folder, "MinMax"),
        "onnxruntime, percentile": lambda folder: by_onnxruntime(folder, "Percentile"),
        **({"modelopt": lambda folder: modelopt(folder, python)} if python else {}),
    }


def save_samples(folder: Path, samples: list[Row]) -> None:
    """Writes samples as every recipe finds them."""
    folder.mkdir()
    for number, feeds in enumerate(samples):
        np.savez(folder / f"{number:03}.npz", **feeds)


def quantised(net: onnx.ModelProto, samples: list[Row], make: Callable[[Path], None]) -> onnx.ModelProto:
    """Returns what a recipe makes of a network; raises what it does."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        onnx.save(net, folder / "float.onnx")
        save_samples(folder / "samples", samples)
        make(folder)
        return onnx.load(folder / "int8.onnx")


def network(name: str, seed: int, python: str | None) -> Row:
    """Quantises a network by every recipe."""
    net = networks.NETWORKS[name](seed)
    held_out = networks.samples(net, _HELD_OUT, seed + 5000)
    expected = outputs(net, held_out)
    rows: Row = {}
    for recipe, make in recipes(python).items():
        try:
            made = quantised(net, networks.samples(net, _CALIBRATING, seed), make)
            got = outputs(made, held_out)
            rows[recipe] = {"rms": rms(expected, got), "int8_share": round(share(made, held_out[0]), 3)}
        except Exception as error:
            rows[recipe] = {"failed": f"{type(error).__name__}: {error}"[:200]}
    return rows


def rms(expected: list[Any], got: list[Any]) -> float:
    """Returns the root mean square of all differences over that of what is expected."""
    pairs = list(zip(expected, got, strict=True))
    ratio = sum(np.square(a - b).sum() for a, b in pairs) / sum(np.square(a).sum() for a, _ in pairs)
    return round(float(np.sqrt(ratio)), 5)


def main() -> int:
    """Prints a line for each network; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of weights and samples")
    parser.add_argument("--only", default=",".join(networks.NETWORKS), help="networks, joined by commas")
    parser.add_argument("--modelopt", metavar="PYTHON")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    given = parser.parse_args()
    rows: Row = {}
    for name in given.only.split(","):
        rows[name] = network(name, given.seed, given.modelopt)
        print(name, json.dumps(rows[name]), flush=True)
        document = {"date": str(datetime.date.today()), "seed": given.seed, "networks": rows}
        (given.out / "quantize-int8.json").write_text(json.dumps(document, indent=1) + "\n")
    others = {n: [r["rms"] for k, r in each.items() if k != ATTENTION and "rms" in r] for n, each in rows.items()}
    nearest = {name: min(each) for name, each in others.items()}
    ours = {name: each[OURS].get("rms", float("inf")) for name, each in rows.items()}
    print(sum(ours[name] <= nearest[name] for name in rows), "of", len(rows), "nearest")
    return 0 if all(ours[name] <= _NEAR * nearest[name] for name in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
