"""Runs Resize to the nearest element on TensorRT 8.6, of all coordinates and roundings, sizes and scales.

    python bench/gpu/nearest.py [--out FOLDER] [--jobs 4]

Each network resizes rows of 0, 1, 2 and so on, so that what comes out says which element was taken. Where a coordinate
lies so near to the border between two that ONNX's evaluator, in float64, ONNX Runtime, in float32, and the scale as it
is written, 0.6 for a float that is none, lead to different ones, each of them is right. Writes
OUT/gpu-nearest-8.6.json: for each mode what was refused, and where an engine takes another element, raw and through
trtconv, with the elements. Exit status: 1 where one is wrong through trtconv.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from node_suite import gpu  # noqa: E402
from outputs import outputs_of  # noqa: E402

Array = NDArray[Any]

COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
LENGTHS = (5, 10, 13, 25, 49)
SCALES = (0.3, 0.6, 0.75, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 11.0)
TARGETS = (3, 6, 7, 9, 12, 15, 21, 33, 50, 98, 147)
OPSET = 13


def network(coordinates: str, rounding: str, by: str) -> onnx.ModelProto:
    """Returns rows of all lengths, each resized by every scale, or to every size."""
    nodes, constants, inputs, outputs = [], [], [], []
    for length in LENGTHS:
        inputs.append(helper.make_tensor_value_info(f"x{length}", onnx.TensorProto.FLOAT, [1, 1, 1, length]))
        for factor in SCALES if by == "scales" else TARGETS:
            size = int(np.floor(np.float32(length) * np.float32(factor))) if by == "scales" else int(factor)
            name = f"y{length}_{factor}"
            value = np.array([1, 1, 1, factor], np.float32 if by == "scales" else np.int64)
            constants.append(numpy_helper.from_array(value, f"c{name}"))
            taken = ["", f"c{name}"] if by == "scales" else ["", "", f"c{name}"]
            modes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
            nodes.append(helper.make_node("Resize", [f"x{length}", *taken], [name], name, mode="nearest", **modes))
            outputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 1, size]))
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", OPSET)])


def _is_off(got: Array, right: Sequence[Array]) -> bool:
    """Whether an engine took an element that is none of those that are right."""
    return got.shape != right[0].shape or not np.logical_or.reduce([got == each for each in right]).all()


def as_written(name: str, coordinates: str, rounding: str) -> list[Array]:
    """Returns the elements at the scale as it is written, of middles and asymmetric coordinates."""
    length, factor = name[1:].split("_")
    if "." not in factor or coordinates == "align_corners":
        return []
    size, scale, half = int(length), Fraction(factor), Fraction(1, 2)
    shift = 0 if coordinates == "asymmetric" else half
    places = [(number + shift) / scale - shift for number in range(int(size * scale))]
    if coordinates == "pytorch_half_pixel" and len(places) == 1:
        places = [Fraction(0)]
    whole = {
        "floor": math.floor,
        "ceil": math.ceil,
        "round_prefer_floor": lambda place: math.ceil(place - half),
        "round_prefer_ceil": lambda place: math.floor(place + half),
    }[rounding]
    elements = [min(max(whole(place), 0), size - 1) for place in places]
    return [np.array(elements, np.float32).reshape(1, 1, 1, -1)]


def row(case: tuple[str, str, str]) -> dict[str, Any]:
    """Builds and runs the network of a mode in both ways."""
    proto = network(*case)
    feeds = {spec.name: np.arange(spec.type.tensor_type.shape.dim[3].dim_value, dtype=np.float32).reshape(1, 1, 1, -1)
             for spec in proto.graph.input}  # fmt: skip
    exact = ReferenceEvaluator(proto).run(None, feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = zip((spec.name for spec in proto.graph.output), exact, session.run(None, feeds), strict=True)
    # Of sizes that round either way none is compared.
    right = {
        name: [one, other, *(each for each in as_written(name, *case[:2]) if each.shape == one.shape)]
        for name, one, other in results
        if one.shape == other.shape
    }
    result: dict[str, Any] = {"coordinates": case[0], "rounding": case[1], "by": case[2]}
    with tempfile.TemporaryDirectory() as folder:
        for way in ("raw", "trtconv"):
            got = outputs_of(proto, feeds, Path(folder), rewrite=way == "trtconv")
            if isinstance(got, str):
                result[way] = got[:300]
                continue
            off = [name for name in right if _is_off(got[name], right[name])]
            result[way] = {
                "of": len(right),
                "wrong": {name: [each.ravel().tolist() for each in (got[name], *right[name])] for name in off},
            }
    print(*case, *(text if isinstance(text := result[w], str) else len(text["wrong"]) for w in ("raw", "trtconv")),
          sep=" | ", flush=True)  # fmt: skip
    return result


def main() -> int:
    """Runs all; returns the exit status."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    arguments.add_argument("--jobs", type=int, default=4)
    options = arguments.parse_args()
    cases = [(how, to, by) for by in ("sizes", "scales") for how in COORDINATES for to in ROUNDINGS]
    rows = []
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for made in pool.imap_unordered(row, cases):
            rows.append(made)
            document = {"date": datetime.date.today().isoformat(), "gpu": gpu(), "rows": rows}
            (options.out / "gpu-nearest-8.6.json").write_text(json.dumps(document) + "\n")
    return int(any(not isinstance(row["trtconv"], str) and row["trtconv"]["wrong"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
