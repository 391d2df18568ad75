"""How far int8 networks are from the float ones: trtconv's against other recipes, on the same samples.

    python bench/quantize.py [--out FOLDER] [--date DATE] [--only NAME] [--seed N] [--no-training]     needs no GPU

Nine networks (`float_nets.py`) are quantised by trtconv, by ONNX Runtime's quantiser with its defaults and with the
settings that TensorRT takes, and by ModelOpt's ONNX path where MODELOPT_PYTHON names an interpreter that has it. For
each result: the error on samples that no calibration saw (root mean square of the difference over that of the float
output), whether the raw parser and builder of TensorRT-RTX take it, and what `check` finds. Then a small network is
trained to take noise out of drawn shapes and to tell them apart, and its own measures (PSNR, IoU) are compared. Writes
FOLDER/quantize.json (default: bench/results), and a table. Ends with 1 where the raw builder refuses a file of
trtconv's, where `check` finds more in one than TC311, or where another recipe that TensorRT takes is nearer.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import float_nets  # noqa: E402
import recipes  # noqa: E402

from trtconv.core.target import Target  # noqa: E402
from trtconv.graph.model import OnnxModel  # noqa: E402
from trtconv.passes import passes_for, run_passes  # noqa: E402
from trtconv.rules import run_rules  # noqa: E402

_CALIBRATING, _HELD_OUT = 32, 12
_RTX = Target("rtx", (1, 7))
Row = dict[str, Any]

RECIPES: dict[str, Callable[[onnx.ModelProto, Sequence[recipes.Feeds]], onnx.ModelProto]] = {
    "trtconv": lambda net, samples: recipes.trtconv(net, samples, target=_RTX),
    "onnxruntime, symmetric per channel": recipes.ort_symmetric,
    "onnxruntime, the same by percentile": lambda net, samples: recipes.ort_symmetric(net, samples, "Percentile"),
    "modelopt": recipes.modelopt,
    "modelopt, all operators": lambda net, samples: recipes.modelopt(
        net, samples, ("Conv", "ConvTranspose", "MaxPool", "Concat", "Add")
    ),
    "onnxruntime, defaults": recipes.ort_default,
}
"""Name to recipe; the last quantises asymmetrically, which TensorRT cannot compute."""
OURS = "trtconv"


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    document: Row = {"date": options.date, "seed": options.seed, "networks": {}, "trained": None}
    path = options.out / "quantize.json"
    for name in float_nets.NETS:
        if options.only in name:
            document["networks"][name] = network(name, options.seed)
            _write(path, document)
            print(_line(name, document["networks"][name]), flush=True)
    if not options.no_training and options.only in "trained":
        document["trained"] = trained()
        print(json.dumps(document["trained"], indent=1))
    _write(path, document)
    print(f"wrote {path}")
    faults = [f"{name}: {fault}" for name, rows in document["networks"].items() for fault in faults_of(rows)]
    print("\n".join(faults))
    return 1 if faults else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--only", default="", metavar="NAME", help="a network, or trained")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of weights and samples")
    parser.add_argument("--no-training", action="store_true")
    return parser.parse_args(arguments)


def network(name: str, seed: int) -> dict[str, Row]:
    """Quantises a network by every recipe."""
    net = float_nets.make(name, seed)
    samples = float_nets.samples(name, _CALIBRATING, seed)
    held_out = float_nets.samples(name, _HELD_OUT, seed + 5000)
    expected = [recipes.outputs(net, feeds)[0] for feeds in held_out]
    rows: dict[str, Row] = {}
    for recipe, make in RECIPES.items():
        try:
            result = make(net, samples)
        except Exception as error:
            rows[recipe] = {"failed": f"{type(error).__name__}: {error}"[:200]}
            continue
        got = [recipes.outputs(result, feeds)[0] for feeds in held_out]
        rows[recipe] = {"rms": rms(expected, got), **taken(result, name), **_counts(result)}
    return rows


def rms(expected: Sequence[Any], got: Sequence[Any]) -> float:
    """Returns the root mean square of all differences over that of what is expected."""
    pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(expected, got, strict=True)]
    return float(np.sqrt(sum(np.square(a - b).sum() for a, b in pairs) / sum(np.square(a).sum() for a, _ in pairs)))


def taken(result: onnx.ModelProto, name: str) -> Row:
    """Says whether the raw parser and builder take a file as it is, and what trtconv's rules find in it."""
    found = sorted({f.code for f in run_rules(OnnxModel(result, Path("net.onnx")), _RTX)})
    model = OnnxModel(result, Path("net.onnx")).copy()
    edits = {edit.pass_name for edit in run_passes(model, passes_for("as-is"), _RTX).edits}
    return {"raw": raw_builder(result, name), "findings": found, "edits": sorted(edits)}


def raw_builder(proto: onnx.ModelProto, name: str) -> str:
    """Returns "built", or what the parser or the builder of TensorRT-RTX says; nothing of trtconv stands between."""
    import tensorrt_rtx as trt

    builder = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR))
    built = builder.create_network(0)
    parser = trt.OnnxParser(built, trt.Logger(trt.Logger.INTERNAL_ERROR))
    if not parser.parse(proto.SerializeToString()):
        return f"parser: {parser.get_error(0).desc()}"[:160]
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    shapes = sorted(float_nets.NETS[name][1])
    profile.set_shape("x", min(shapes), shapes[0], max(shapes))
    config.add_optimization_profile(profile)
    return "built" if builder.build_serialized_network(built, config) is not None else "the builder refuses"


def _counts(proto: onnx.ModelProto) -> Row:
    """Counts the layers that are quantised."""
    makers = {name: node.op_type for node in proto.graph.node for name in node.output}
    counts: Row = {}
    for op in ("Conv", "ConvTranspose"):
        nodes = [node for node in proto.graph.node if node.op_type == op]
        counts[op] = f"{sum(makers.get(n.input[1]) == 'DequantizeLinear' for n in nodes)} of {len(nodes)}"
    return counts


def faults_of(rows: Mapping[str, Row]) -> list[str]:
    """Returns in what trtconv falls short for a network."""
    ours = rows[OURS]
    if "failed" in ours:
        return [ours["failed"]]
    found = [] if ours["raw"] == "built" else [f"the raw builder: {ours['raw']}"]
    if set(ours["findings"]) - {"TC311"}:
        found.append(f"check finds {ours['findings']}")
    for recipe, row in rows.items():
        if row.get("raw") == "built" and row["rms"] < ours["rms"]:
            found.append(f"{recipe} is nearer: {row['rms']:.4f} against {ours['rms']:.4f}")
    return found


def _line(name: str, rows: Mapping[str, Row]) -> str:
    cells = []
    for recipe, row in rows.items():
        if "failed" in row:
            cells.append(f"{recipe}: {row['failed'][:60]}")
            continue
        refused = "" if row["raw"] == "built" else ", refused raw"
        cells.append(f"{recipe}: {100 * row['rms']:.2f} % ({row['ConvTranspose']} deconvolutions{refused})")
    return f"{name}\n  " + "\n  ".join(cells)


def _write(path: Path, document: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def trained() -> Row | None:
    """Trains a network that takes noise out of drawn shapes and tells them apart, and quantises it."""
    try:
        import shapes_net
    except ImportError as error:
        return {"failed": f"not trained: {error}"}
    net, calibrating, held_out = shapes_net.trained()
    rows: Row = {"float32": shapes_net.judged(net, held_out)}
    samples = [{"x": each["x"]} for each in calibrating]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save_model(net, path)
    for recipe, make in RECIPES.items():
        try:
            result = make(net, samples)
        except Exception as error:
            rows[recipe] = {"failed": f"{type(error).__name__}: {error}"[:200]}
            continue
        rows[recipe] = shapes_net.judged(result, held_out) | {"raw": raw_builder(result, "unet2d"), **_counts(result)}
    return rows


if __name__ == "__main__":
    sys.exit(main())
