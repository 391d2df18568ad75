"""Vectors get the axes that a parser wants, and Einsums lose those that a builder does not take."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.passes import PASSES, run_passes


def both(text: str, opset: int = 17) -> tuple[onnx.ModelProto, onnx.ModelProto, list[str]]:
    """Returns a model, what the passes make of it, and which ones edited it."""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')
    rewritten = wrap(proto)
    edits = run_passes(rewritten, PASSES, RTX).edits
    return proto, rewritten.proto, [edit.pass_name for edit in edits]


def assert_same(proto: onnx.ModelProto, rewritten: onnx.ModelProto, shapes: dict[str, list[int]]) -> None:
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for expected, got in zip(run(proto, feeds), run(rewritten, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        assert got.dtype == expected.dtype and got.shape == expected.shape


@pytest.mark.parametrize("opset", [11, 17])
@given(st.lists(st.integers(1, 3), max_size=2), st.booleans(), st.booleans())
def test_a_vector_times_matrices(opset: int, batch: list[int], first: bool, dynamic: bool) -> None:
    matrices = [*batch, 4, 2] if first else [*batch, 2, 4]
    dims = ",".join("nmpq"[axis] if dynamic and size != 4 else str(size) for axis, size in enumerate(matrices))
    order = "v, m" if first else "m, v"
    rest = ",".join("abc"[: len(batch) + 1])
    text = f"(float[4] v, float[{dims}] m) => (float[{rest}] y) {{ y = MatMul ({order}) }}"
    proto, rewritten, edits = both(text, opset)
    assert edits == (["add-second-axis"] if first and batch else [])
    assert_same(proto, rewritten, {"v": [4], "m": matrices})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", ["", "axis = -1, ", "axis = 0, "])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("size", ["5", "n"])
def test_the_largest_of_one_axis(op: str, axis: str, keep: int, size: str) -> None:
    text = f"(float[{size}] x) => (int64{'[1]' * keep} y) {{ y = {op} <{axis}keepdims = {keep}> (x) }}"
    proto, rewritten, edits = both(text)
    assert edits == ["add-second-axis"]
    assert_same(proto, rewritten, {"x": [5]})


def test_a_product_of_integers_has_two_axes_too() -> None:
    text = "(uint8[4] v, uint8[3,4,2] m, uint8 z) => (int32[3,2] y) { y = MatMulInteger (v, m, z) }"
    proto, rewritten, edits = both(text)
    assert edits == ["multiply-in-float", "add-second-axis"]
    random = np.random.default_rng(0)
    feeds = {name: random.integers(0, 256, shape, np.uint8) for name, shape in (("v", 4), ("m", (3, 4, 2)))}
    feeds["z"] = np.array(7, np.uint8)
    np.testing.assert_array_equal(run(rewritten, feeds)[0], run(proto, feeds)[0])


EQUATIONS = (
    "bik,bkj->bij",
    "ik,kj->ij",
    "...ik,...kj->...ij",
    "bi,bj->ij",
    "ij,ij->ij",
    "b...i,bi->...",
)


@given(st.sampled_from(EQUATIONS), st.data())
def test_axes_of_one_element_are_summed_over(equation: str, data: st.DataObject) -> None:
    sizes = {letter: data.draw(st.integers(1, 3)) for letter in "bijk."}
    shapes = {}
    for name, term in zip("xw", equation.partition("->")[0].split(","), strict=True):
        shapes[name] = [data.draw(st.sampled_from((1, sizes[letter]))) for letter in term.replace("...", ".")]
    inputs = ", ".join(f"float{shape} {name}" for name, shape in shapes.items())
    proto, rewritten, edits = both(f'({inputs}) => (float[] y) {{ y = Einsum <equation = "{equation}"> (x, w) }}')
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    rewritten.graph.output[0].type.tensor_type.ClearField("shape")
    assert edits in ([], ["sum-without-ones"])
    assert_same(proto, rewritten, shapes)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("bik,bkj->bij", "[1,3,1],[2,2,4]"), ("bik,bkj->bij", "[1,3,2],[2,1,4]"), ("...k,k->...", "[2,3,1],[4]")],
)
def test_a_sum_over_one_element_and_more_is_written(equation: str, shapes: str) -> None:
    first, second = shapes.replace("],[", "] [").split()
    inputs = f"float{first} x, float{second} w"
    _, _, edits = both(f'({inputs}) => (float[a,b,c] y) {{ y = Einsum <equation = "{equation}"> (x, w) }}')
    assert edits == ["sum-without-ones"]


@pytest.mark.parametrize("equation", ["ii,ik->k", "ik,kj", "x", "ik->i", "ik,k->->i", "ik,kj,jl->il"])
def test_equations_that_nobody_reads_are_left(equation: str) -> None:
    text = f'(float[1,1] x, float[1,2] w) => (float[a] y) {{ y = Einsum <equation = "{equation}"> (x, w) }}'
    assert "sum-without-ones" not in both(text)[2]


@pytest.mark.parametrize("op", ["Hardmax", "Softmax"])
@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("axis", ["", "<axis = -1> ", "<axis = 0> "])
@pytest.mark.parametrize("size", ["5", "n"])
def test_shares_of_one_axis(op: str, opset: int, axis: str, size: str) -> None:
    if opset == 11 and not axis:
        pytest.skip("the default is an axis that it has not")
    proto, rewritten, edits = both(f"(float[{size}] x) => (float[{size}] y) {{ y = {op} {axis}(x) }}", opset)
    assert edits == ["add-second-axis"]
    assert_same(proto, rewritten, {"x": [5]})
