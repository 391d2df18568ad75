"""Pieces that are moved a little, or made to see further: the arithmetic that the proof measures rounding by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import session
from trtconv.runtimes.proof.shaken import shaken, steps, take_magnitudes, widen_interpolations

PIECE = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,3] x) => (float[2,3] y) <float[3] w = {1, 2, 4}, int64[1] n = {0}>
{ a = Mul (x, w)  b = Neg (a)  u = Unsqueeze (b, n)  s = Squeeze (u, n)  y = Abs (s) }"""


def model_of(text: str) -> OnnxModel:
    proto = onnx.parser.parse_model(text)
    return OnnxModel(onnx.shape_inference.infer_shapes(proto), Path("m.onnx"))


@pytest.mark.parametrize("seed", range(3))
def test_weights_and_intermediate_results_are_off_by_the_factor(seed: int) -> None:
    model, by = model_of(PIECE), 0.125
    before = model.proto.SerializeToString()
    made = shaken(model.proto, model, by, seed)
    assert model.proto.SerializeToString() == before
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    assert set(np.abs(held["w"] / [1, 2, 4] - 1).tolist()) == {by} and held["n"].tolist() == [0]
    factors = {name: float(value) for name, value in held.items() if name.endswith(":factor")}
    # One for each tensor between the piece's ends.
    assert factors.keys() == {f"{name}:factor" for name in "abus"}
    assert {abs(factor - 1) for factor in factors.values()} == {by}
    x = np.full((2, 3), 8, np.float32)
    (y,) = session(OnnxModel(made, model.path)).run(["y"], {"x": x})
    np.testing.assert_allclose(y, np.abs(x * held["w"] * np.prod(list(factors.values()))), rtol=1e-6)


def test_signs_differ_from_one_seed_to_the_next() -> None:
    model = model_of(PIECE)
    for name in ("a:factor", "w"):
        held = [
            t for seed in range(8) for t in shaken(model.proto, model, 0.5, seed).graph.initializer if t.name == name
        ]
        first = {float(numpy_helper.to_array(tensor).ravel()[0]) for tensor in held}
        assert first == {0.5, 1.5}
    assert len({shaken(model.proto, model, 0.1, seed).SerializeToString() for seed in range(6)}) > 1


@pytest.mark.parametrize(("kind", "reads"), [("float", ["a:magnitude", "x"]), ("int64", ["a", "x"])])
def test_sums_of_floats_are_of_magnitudes_and_sums_of_sizes_are_not(kind: str, reads: list[str]) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({kind}[2] x) => ({kind}[2] y) {{ a = Neg (x)  y = Add (a, x) }}'
    model = model_of(text)
    take_magnitudes(model.proto.graph, model)
    assert list(model.proto.graph.node[-1].input) == reads


RESIZE = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,1,6,6] x) => (float[1,1,12,12] y) <float[4] s = {{1,1,2,2}}>
{{ y = Resize <mode = "{}"{}> (x, , s) }}"""


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_interpolations_read_the_largest_of_what_is_beside(mode: str) -> None:
    extra = ", cubic_coeff_a = -0.5, exclude_outside = 1" if mode == "cubic" else ""
    model = model_of(RESIZE.format(mode, extra))
    x = np.zeros((1, 1, 6, 6), np.float32)
    x[0, 0, 3, 2] = 1
    widen_interpolations(model.proto, model)
    (y,) = session(model).run(["y"], {"x": x})
    # The element and those beside it are 1 now, and 1 it stays where one interpolates among them.
    assert y.max() == 1 and (y[0, 0, 5:9, 3:7] == 1).all() and not y[0, 0, :2].any() and not y[0, 0, :, 10:].any()
    assert y.min() >= 0


def test_what_takes_the_nearest_stays() -> None:
    model = model_of(RESIZE.format("nearest", ""))
    before = model.proto.SerializeToString()
    widen_interpolations(model.proto, model)
    assert model.proto.SerializeToString() == before


def test_a_matrix_has_no_places_beside_an_element() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[a,b] y) <float[2] s = {2,2}> '
    model = model_of(f'{text} {{ y = Resize <mode = "linear"> (x, , s) }}')
    before = model.proto.SerializeToString()
    widen_interpolations(model.proto, model)
    assert model.proto.SerializeToString() == before


@pytest.mark.parametrize(
    ("mode", "shape", "times"),
    [
        ("nearest", (1, 1, 100, 40), 1.0),
        ("linear", (1, 1, 100, 40), 25.0),
        ("cubic", (1, 1, 10, 48), 12.0),
        ("linear", (9, 9, 2, 2), 1.0),
    ],
)
def test_positions_are_rounded_by_their_size(mode: str, shape: tuple[int, ...], times: float) -> None:
    assert steps(model_of(RESIZE.format(mode, "")).proto, np.zeros(shape)) == times
    assert steps(model_of(PIECE).proto, np.zeros(shape)) == 1.0
