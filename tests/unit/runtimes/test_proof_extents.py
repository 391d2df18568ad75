"""Shapes that inference does not know are those of the size lattice, or of a run, where it is not long."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof import extents
from trtconv.runtimes.proof.extents import shapes_of
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

TEXT = """<ir_version: 8, opset_import: ["": 17, "other": 1]>
g (float[2,n] x) => (float[a,b] y, float[2,n] z) { y = other.Turned (x)  z = Neg (x) }"""
TENSORS = tuple(ReadTensor(number, name, "float32", None) for number, name in enumerate("xyz"))
LAYERS = (
    ReadLayer(
        0, "y", "SHUFFLE", (0,), (1,), {"first_transpose": (1, 0), "second_transpose": (0, 1), "reshape_dims": None}
    ),
    ReadLayer(1, "z", "UNARY", (0,), (2,), {"op": "NEG"}),
)


def found(*names: str) -> dict[str, tuple[int | None, ...] | None]:
    model = OnnxModel(onnx.parser.parse_model(TEXT), Path("m.onnx"))
    network = ReadNetwork(TENSORS, LAYERS, (0,), (1, 2))
    shapes = shapes_of(network, model, {"x": (2, 5)}, names, 100)
    return {name: shapes.get(name) for name in "xyz"}


def test_what_is_lacking_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "_SECONDS", 60.0)
    assert found("y", "z") == {"x": (2, 5), "y": (5, 2), "z": (2, 5)}


def test_what_nobody_asks_about_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "_traced", None)
    assert found("z")["y"] is None
    assert found()["z"] == (2, 5)


def test_a_run_that_multiplies_too_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "_MOST_PRODUCTS", -1)
    assert found("y")["y"] is None


def test_what_neither_knows_the_parser_may_have_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "_traced", None)
    model = OnnxModel(onnx.parser.parse_model(TEXT), Path("m.onnx"))
    for shape, expected in (((5, 2), (5, 2)), ((), ())):
        tensors = (TENSORS[0], ReadTensor(1, "y", "float32", shape), TENSORS[2])
        assert shapes_of(ReadNetwork(tensors, LAYERS, (0,), (1, 2)), model, {"x": (2, 5)}, ["y"], 100)["y"] == expected
    monkeypatch.setattr(extents, "_traced", lambda *_: {"y": (7, 7)})
    tensors = (TENSORS[0], ReadTensor(1, "y", "float32", (-1, 2)), TENSORS[2])
    shapes = shapes_of(ReadNetwork(tensors, LAYERS, (0,), (1, 2)), model, {"x": (2, 5)}, ["y"], 100)
    assert shapes["y"] == (7, 7), "a size that is open is not known"


EXPANDED = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,4,h,w] x) => (float[a,b,c] y) <int64[1] minus = {-1}, int64[1] first = {0}, int64[1] four = {4}> {
  s = Shape (x)  n = Gather (s, first)  size = Concat <axis = 0> (n, four, minus)
  flat = Reshape (x, size)  t = Transpose <perm = [0, 2, 1]> (flat)
  wide = Shape (t)  many = Mul (wide, wide)
  less = Div (many, wide)  y = Expand (t, less)
}"""


def test_computed_sizes_are_those_of_the_lattice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ONNX's inference does not follow: products and quotients of sizes. A run is not needed for them."""
    monkeypatch.setattr(extents, "_MOST_PRODUCTS", -1)
    model = OnnxModel(onnx.parser.parse_model(EXPANDED), Path("m.onnx"))
    network = ReadNetwork((), (), (), ())
    assert None in (extents.shapes_with(model, {"x": (1, 4, 6, 10)}).get("y") or (None,))
    shapes = shapes_of(network, model, {"x": (1, 4, 6, 10)}, ["y"], 100)
    assert shapes["y"] == (1, 60, 4)
