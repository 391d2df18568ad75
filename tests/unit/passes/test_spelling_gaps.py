"""Forms of usual operators that a parser lacks, and nobody expects it to: integers, few axes, negative amounts."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import parser
from onnx.reference import ReferenceEvaluator

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.core.target import Target
from trtconv.graph.interpolation import Interpolation, ResizedAxis, nearest
from trtconv.passes import PASSES, run_passes


def both(text: str, opset: int, target: Target = RTX) -> tuple[onnx.ModelProto, onnx.ModelProto, set[str]]:
    """Returns a model, what the passes make of it, and which ones edited it."""
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> g {text}')
    rewritten = wrap(proto)
    edits = run_passes(rewritten, PASSES, target).edits
    return proto, rewritten.proto, {edit.pass_name for edit in edits}


def assert_equal(proto: onnx.ModelProto, rewritten: onnx.ModelProto, **feeds: NDArray[Any]) -> None:
    for expected, got in zip(run(proto, feeds), run(rewritten, feeds), strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype


def test_relu_of_integers() -> None:
    proto, rewritten, edits = both("(int32[n] x) => (int32[n] y) { y = Relu (x) }", 17)
    assert edits == {"pick-above-zero"}
    assert_equal(proto, rewritten, x=np.array([-3, 0, 2, -(1 << 31), (1 << 31) - 1], np.int32))


def test_relu_of_floats_is_left() -> None:
    assert both("(float[n] x) => (float[n] y) { y = Relu (x) }", 17)[2] == set()


@given(st.data(), st.sampled_from(["int32", "int64"]), st.booleans())
def test_slice_of_the_first_axes(data: st.DataObject, dtype: str, by_steps: bool) -> None:
    count = data.draw(st.integers(1, 3))
    number = st.integers(-7, 7)
    starts, ends = (data.draw(st.lists(number, min_size=count, max_size=count)) for _ in "se")
    steps = data.draw(st.lists(st.sampled_from((1, 2, -1)), min_size=count, max_size=count))
    rows = {"s": starts, "e": ends, **({"t": steps} if by_steps else {})}
    stored = ", ".join(f"{dtype}[{count}] {name} = {{{', '.join(map(str, row))}}}" for name, row in rows.items())
    call = 'Slice (x, s, e, "", t)' if by_steps else "Slice (x, s, e)"
    proto, rewritten, edits = both(f"(float[3,4,5] x) => (float[p,q,r] y) <{stored}> {{ y = {call} }}", 17)
    assert ("write-slice-axes" in edits) is (count < 3)
    assert_equal(proto, rewritten, x=np.arange(60, dtype=np.float32).reshape(3, 4, 5))


@given(st.lists(st.integers(-2, 2), min_size=4, max_size=4), st.booleans())
def test_wrap_around_what_is_left(pads: list[int], dynamic: bool) -> None:
    shape = "n,m" if dynamic else "6,7"
    stored = f"int64[4] p = {{{', '.join(map(str, pads))}}}"
    text = f'(float[{shape}] x) => (float[a,b] y) <{stored}> {{ y = Pad <mode = "wrap"> (x, p) }}'
    proto, rewritten, edits = both(text, 19)
    assert ("crop-before-wrap" in edits) is (min(pads) < 0)
    assert_equal(proto, rewritten, x=np.arange(42, dtype=np.float32).reshape(6, 7))


@given(
    st.lists(st.integers(-2, 2), min_size=4, max_size=4),
    st.sampled_from(["n,m", "6,7"]),
    st.sampled_from(["constant", "edge", "reflect"]),
    st.sampled_from([9, 10, 13, 17]),
)
def test_what_is_cropped_is_cut_off_first_for_tensorrt_8(pads: list[int], shape: str, mode: str, opset: int) -> None:
    listed = ", ".join(map(str, pads))
    stored, given_, more = (
        ("", "", f", pads = [{listed}]") if opset < 11 else (f"<int64[4] p = {{{listed}}}>", ", p", "")
    )
    text = f'(float[{shape}] x) => (float[a,b] y) {stored} {{ y = Pad <mode = "{mode}"{more}> (x{given_}) }}'
    proto, rewritten, edits = both(text, opset, Target("tensorrt", (8, 6)))
    # Of an axis of one element two are not cropped and padded again.
    mixed = any(min(pair) < -1 and max(pair) > 0 for pair in zip(pads[:2], pads[2:], strict=True))
    assert ("crop-before-wrap" in edits) is (min(pads) < 0 and not (mixed and shape == "n,m"))
    x = np.arange(42, dtype=np.float32).reshape(6, 7)
    assert_equal(proto, rewritten, x=x)
    assert "crop-before-wrap" not in both(text, opset)[2]


@pytest.mark.parametrize(
    ("opset", "inputs", "call"),
    [
        # All of an axis, or more; then pads of both ends count together.
        (17, "float[3,5] x", "Pad (x, p)"),
        (9, "float[3,5] x", "Pad <pads = [-3, 0, 4, 0]> (x)"),
        # Amounts that are none, and axes that are none.
        (17, "float[30,5] x", "Pad (x, few)"),
        (17, "float[30,5,2] x", "Pad (x, p)"),
        (18, "float[30,5] x", 'Pad (x, p, "", beyond)'),
        (18, "float[30,5] x", 'Pad (x, p, "", twice)'),
        (17, "float[30,5] x", "Pad (x, square)"),
        (17, "float[30,5] x", "Pad (x, floats)"),
    ],
)
def test_other_crops_are_left_for_tensorrt_8(opset: int, inputs: str, call: str) -> None:
    stored = """<int64[4] p = {-5, 0, 4, 0}, int64[3] few = {-1, 0, 1}, int64[2] beyond = {0, 2},
        int64[2] twice = {1, -1}, int64[2,2] square = {-1, 0, 1, 0}, float[4] floats = {-1, 0, 1, 0}>"""
    text = f"({inputs}) => (float[a,b] y) {stored} {{ y = {call} }}"
    assert "crop-before-wrap" not in both(text, opset, Target("tensorrt", (8, 6)))[2]


def test_what_is_cropped_of_some_axes_for_tensorrt_8() -> None:
    text = """(float[4,5,6] x) => (float[a,5,b] y) <int64[4] p = {-1, 2, 1, -2}, float v = {3}, int64[2] axes = {-1, 0}>
    { y = Pad (x, p, v, axes) }"""
    proto, rewritten, edits = both(text, 18, Target("tensorrt", (8, 6)))
    assert "crop-before-wrap" in edits
    assert_equal(proto, rewritten, x=np.arange(120, dtype=np.float32).reshape(4, 5, 6))


@pytest.mark.parametrize("axes", ["[1]", "[0, 2]", "[-1, 1]"])
@pytest.mark.parametrize("opset", [11, 17, 18])
def test_variance_of_values_far_from_zero(axes: str, opset: int) -> None:
    text = f"(float[3,4,5] x) => (float[3,4,5] y) {{ y = MeanVarianceNormalization <axes = {axes}> (x) }}"
    _, rewritten, edits = both(text, opset)
    assert "centre-first" in edits
    x = (1000 + np.random.default_rng(0).random((3, 4, 5)) / 4).astype(np.float32)
    over = tuple(parser.parse_node(f"y = N <axes = {axes}> (x)").attribute[0].ints)
    centred = x.astype(np.float64) - x.mean(over, np.float64, keepdims=True)
    expected = centred / (np.sqrt((centred**2).mean(over, keepdims=True)) + 1e-9)
    # Of the squares less the square no digit is left in float32.
    np.testing.assert_allclose(run(rewritten, {"x": x})[0], expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("round_up", [False, True])
@given(st.integers(1, 30), st.integers(1, 40), st.sampled_from(["half_pixel", "pytorch_half_pixel"]))
def test_the_nearest_of_two_that_are_equally_near(round_up: bool, size: int, count: int, mode: str) -> None:
    rounds = "round_prefer_ceil" if round_up else "round_prefer_floor"
    attributes = f'mode = "nearest", coordinate_transformation_mode = "{mode}", nearest_mode = "{rounds}"'
    stored = f"int64[4] s = {{1, 1, 1, {count}}}"
    text = f"(float[1,1,1,{size}] x) => (float[1,1,1,{count}] y) <{stored}> {{ y = Resize <{attributes}> (x, , , s) }}"
    _, rewritten, edits = both(text, 17)
    # (2 i + 1) size / (2 count) - 1/2 is a whole number and a half.
    places = [((2 * i + 1) * size, 2 * count) for i in range(count)]
    halfway = size != count and any(0 < over // under < size and over % under == 0 for over, under in places)
    whole = (count / size).as_integer_ratio()
    doubles = 1 in whole and not (max(whole) & (max(whole) - 1))
    single = mode == "pytorch_half_pixel" and count == 1
    assert ("resize-by-matrix" in edits) is (halfway and not doubles and not single)
    if "resize-by-matrix" not in edits:
        return
    # ONNX Runtime itself takes the other one of some.
    expected = [over // under if round_up or over % under else over // under - 1 for over, under in places]
    (y,) = run(rewritten, {"x": np.arange(size, dtype=np.float32).reshape(1, 1, 1, size)})
    assert y.reshape(-1).tolist() == [min(max(place, 0), size - 1) for place in expected]


def test_a_scale_that_nearly_leads_halfway_is_left() -> None:
    """0.7 as a float32 takes the fourth element from a place that is 4.5 in float32, and a little more in float64."""
    stored = "float[4] s = {1, 1, 1, 0.7}"
    assert both(f"(float[1,1,1,6] x) => (float[1,1,1,4] y) <{stored}> {{ y = Resize (x, , s) }}", 17)[2] == set()


def test_places_that_lie_halfway_do_so_exactly() -> None:
    axis = ResizedAxis(14, 17, 17 / 14)
    assert nearest(axis, Interpolation())[8] == 6
    assert nearest(axis, Interpolation(nearest_mode="round_prefer_ceil"))[8] == 7


@pytest.mark.parametrize("order", ["[2, 3]", "[3, 2]", "[-1, -2]"])
@pytest.mark.parametrize("source", ["constant", "input"])
def test_sizes_of_some_axes_beside_dynamic_ones(order: str, source: str) -> None:
    given, stored = (", int64[2] s", "") if source == "input" else ("", "<int64[2] s = {5, 7}>")
    text = f"(float[n,c,h,w] x{given}) => (float[n,c,p,q] y) {stored} {{ y = Resize <axes = {order}> (x, , , s) }}"
    _, rewritten, edits = both(text, 18)
    assert edits == {"resize-all-axes"}
    # Axes that are counted from the end older versions of ONNX Runtime read wrongly.
    proto, _, _ = both(text.replace("[-1, -2]", "[3, 2]"), 18)
    feeds = {"s": np.array([5, 7])} if source == "input" else {}
    assert_equal(proto, rewritten, x=np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4), **feeds)


@pytest.mark.parametrize("extra", ['keep_aspect_ratio_policy = "not_larger", ', ""])
def test_sizes_of_some_axes_are_left_where_they_suffice(extra: str) -> None:
    shape = "n,c,h,w" if extra else "2,3,h,w"
    text = f"<int64[2] s = {{5, 7}}> {{ y = Resize <{extra}axes = [2, 3]> (x, , , s) }}"
    assert "resize-all-axes" not in both(f"(float[{shape}] x) => (float[{shape}] y) {text}", 18)[2]


@pytest.mark.parametrize("positions", ["b,s", "1,2", "b,2", "2,s"])
@pytest.mark.parametrize("shape", ["b,3,s,4", "2,3,2,4"])
def test_rotations_of_sizes_that_are_not_told_to_be_the_same(positions: str, shape: str) -> None:
    if positions == "1,2" and shape == "2,3,2,4":
        pytest.skip("of other sizes")
    tables = "float[4,2] c = {1, 2, 3, 4, 5, 6, 7, 8}, float[4,2] d = {8, 7, 6, 5, 4, 3, 2, 1}"
    values = f"(float[{shape}] x, int64[{positions}] p) => (float[{shape}] y)"
    edits = both(f"{values} <{tables}> {{ y = RotaryEmbedding (x, c, d, p) }}", 23)[2]
    alike = positions.split(",") == [shape.split(",")[0], shape.split(",")[2]]
    assert ("expand-functions" in edits) is not alike


@pytest.mark.parametrize("source", ["int64", "float"])
def test_cast_like_a_byte(source: str) -> None:
    text = f"({source}[4] x, uint8[1] like) => (uint8[4] y) {{ y = CastLike (x, like) }}"
    proto, rewritten, edits = both(text, 19)
    assert "expand-functions" in edits and all(node.op_type != "CastLike" for node in rewritten.graph.node)
    x = np.array([0, 1, 200, 255], np.dtype({"float": "float32"}.get(source, source)))
    assert_equal(proto, rewritten, x=x, like=np.array([1], np.uint8))


@given(
    st.sampled_from(["int32", "int64"]),
    st.lists(st.integers(1, 3), max_size=2),
    st.tuples(*[st.integers(1, 4)] * 3),
    st.sampled_from(["", "left", "right", "both"]),
    st.booleans(),
)
def test_products_of_integers(
    dtype: str, batch: list[int], sizes: tuple[int, int, int], vector: str, dynamic: bool
) -> None:
    m, k, n = sizes
    left = [k] if vector in ("left", "both") else [*batch, m, k]
    right = [k] if vector in ("right", "both") else [k, n]
    names = [
        ",".join(f"{name}{i}" if dynamic else str(s) for i, s in enumerate(shape))
        for name, shape in (("a", left), ("b", right))
    ]
    rank = len(left) + len(right) - 2
    result = ",".join("pqrstu"[:rank])
    text = f"({dtype}[{names[0]}] a, {dtype}[{names[1]}] b) => ({dtype}[{result}] y) {{ y = MatMul (a, b) }}"
    proto, rewritten, _ = both(text, 17)
    assert all(node.op_type != "MatMul" for node in rewritten.graph.node)
    # Beyond what a float32 holds. ONNX Runtime's own sums stop at the largest int32, and are float64 for int64.
    big = 1 << (14 if dtype == "int32" else 25)
    random = np.random.default_rng(0)
    feeds = {name: random.integers(-big, big, shape).astype(dtype) for name, shape in (("a", left), ("b", right))}
    assert_equal(proto, rewritten, **feeds)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dynamic", ["", "data", "all"])
@given(st.data(), st.sampled_from(["float", "int32"]))
def test_scatters_along_an_axis(reduction: str, dynamic: str, data: st.DataObject, dtype: str) -> None:
    rank = data.draw(st.integers(1, 3))
    shape = data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    axis = data.draw(st.integers(0, rank - 1))
    # Along the other axes there may be fewer; along this one more, some of them for the same place.
    counts = [data.draw(st.integers(1, 6 if number == axis else size)) for number, size in enumerate(shape)]
    sizes = ",".join(f"n{i}" if dynamic else str(size) for i, size in enumerate(shape))
    updates = ",".join(f"m{i}" if dynamic == "all" else str(size) for i, size in enumerate(counts))
    call = f'ScatterElements <axis = {axis - rank if data.draw(st.booleans()) else axis}, reduction = "{reduction}">'
    inputs = f"{dtype}[{sizes}] x, int64[{updates}] i, {dtype}[{updates}] u"
    proto, rewritten, edits = both(f"({inputs}) => ({dtype}[{sizes}] y) {{ y = {call} (x, i, u) }}", 18)
    assert "scatter-by-position" in edits
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    kind = np.float32 if dtype == "float" else np.int32
    feeds = {
        "x": random.integers(-9, 9, shape).astype(kind),
        "i": random.integers(-shape[axis], shape[axis], counts),
        "u": random.integers(-9, 9, counts).astype(kind),
    }
    assert_equal(proto, rewritten, **feeds)


@pytest.mark.parametrize(
    ("modes", "scale", "count"),
    [
        ("asymmetric floor", 0.6, 15),
        # Its corners are those of 25 and 37.5, or of 25 and 37; one element of 1.5; and what is copied, or is not.
        ("align_corners floor", 1.5, 37),
        ("pytorch_half_pixel floor", 0.06, 1),
        ("half_pixel floor", 1.02, 25),
    ],
)
def test_neighbours_of_integers_that_may_be_read_otherwise_are_left(modes: str, scale: float, count: int) -> None:
    coordinates, rounding = modes.split()
    text = f"""<ir_version: 9, opset_import: ["": 17]>
    g (int32[1,1,4,25] x) => (int32[1,1,4,{count}] y) <float[4] s = {{1, 1, 1, {scale}}}>
    {{ y = Resize <mode = "nearest", coordinate_transformation_mode = "{coordinates}", nearest_mode = "{rounding}">
           (x, , s) }}"""
    done = run_passes(wrap(parser.parse_model(text)), PASSES, RTX)
    reasons = [skip.reason for skip in done.skipped]
    assert reasons == ["which elements are the nearest depends on how its scales are rounded"]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool", "int32"])
@pytest.mark.parametrize("scale", [2.0, 1.5, 0.5])
def test_nearest_neighbours_of_integers(dtype: str, scale: float) -> None:
    attributes = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
    text = f"""({dtype}[1,1,4,6] x) => ({dtype}[1,1,p,q] y) <float[4] s = {{1, 1, {scale}, {scale}}}>
    {{ y = Resize <{attributes}> (x, , s) }}"""
    proto, rewritten, _ = both(text, 17)
    types = {node.op_type for node in rewritten.graph.node}
    assert "Gather" in types if dtype == "int32" else {"Cast", "Resize"} <= types
    values = np.arange(24).reshape(1, 1, 4, 6) * 7 - (50 if dtype != "uint8" else 0)
    x = (values % 2).astype(bool) if dtype == "bool" else values.astype(dtype)
    resized = onnx.ModelProto()
    resized.CopyFrom(proto)
    # ONNX Runtime lacks some of the types: which elements are taken is the same for all.
    for value in (resized.graph.input[0], resized.graph.output[0]):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    (expected,) = run(resized, {"x": x.astype(np.float32)})
    np.testing.assert_array_equal(run(rewritten, {"x": x})[0], expected.astype(x.dtype))


_KINDS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
REDUCTIONS = [f"Reduce{kind}" for kind in _KINDS]


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("nothing", ["attribute", "constant", "copy", "number"])
def test_reductions_over_nothing(op: str, nothing: str) -> None:
    shape = "" if nothing == "number" else "[2,3]"
    call = {
        "attribute": f"y = {op} <noop_with_empty_axes = 1> (x)",
        "constant": f"y = {op} <noop_with_empty_axes = 1> (x, a)",
        "copy": f"b = Identity (a)  y = {op} <noop_with_empty_axes = 1> (x, b)",
        "number": f"y = {op} (x)",
    }[nothing]
    _, rewritten, edits = both(f"(float{shape} x) => (float{shape} y) <int64[0] a = {{}}> {{ {call} }}", 18)
    assert "write-elementwise" in edits
    assert not [node for node in rewritten.graph.node if node.op_type.startswith("Reduce")]
    x = np.array(2.5, np.float32) if nothing == "number" else np.array([[1, 2, 3], [4, 5, 60]], np.float32) / 4
    expected = {
        "ReduceLogSum": np.log(x),
        "ReduceSumSquare": x * x,
    }.get(op, x)
    np.testing.assert_allclose(run(rewritten, {"x": x})[0], expected, rtol=1e-6)


def test_reductions_over_something_are_left() -> None:
    for call in ("ReduceSum (x)", *(f"ReduceSum <noop_with_empty_axes = 1> (x, {axes})" for axes in "an")):
        text = f"(float[2,3] x, int64[k] n) => (float[p,q] y) <int64[1] a = {{1}}> {{ y = {call} }}"
        assert "write-elementwise" not in both(text, 18)[2]


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("made", ["", "b = Identity (a)"])
def test_an_empty_list_of_axes_stands_for_all_of_them_on_tensorrt_8(op: str, made: str) -> None:
    call = f"{made}  y = {op} <keepdims = 0> (x, {'b' if made else 'a'})"
    text = f"(float[2,3] x) => (float y) <int64[0] a = {{}}> {{ {call} }}"
    proto, rewritten, edits = both(text, 18, Target("tensorrt", (8, 6)))
    assert "reduce-all-axes" in edits and "reduce-all-axes" not in both(text, 18)[2]
    assert_equal(proto, rewritten, x=np.array([[1, 2, 3], [4, 5, 60]], np.float32) / 4)


def test_axes_that_are_named_or_known_at_run_time_stay() -> None:
    for call in ("y = ReduceSum (x, o)", "y = ReduceSum (x, n)", "y = ReduceSum <noop_with_empty_axes = 1> (x, a)"):
        text = f"(float[2,3] x, int64[k] n) => (float[p,q] y) <int64[0] a = {{}}, int64[1] o = {{1}}> {{ {call} }}"
        assert "reduce-all-axes" not in both(text, 17, Target("tensorrt", (8, 6)))[2]


@pytest.mark.parametrize("shape", ["2,3,4,5,6", "n,3,d,h,w"])
def test_axes_are_joined_for_tensorrt_8(shape: str) -> None:
    stored = "float[3] s = {1, 2, 3}, float[3] b = {-1, 0, 1}"
    text = f"(float[{shape}] x) => (float[{shape}] y) <{stored}> {{ y = InstanceNormalization (x, s, b) }}"
    proto, rewritten, edits = both(text, 17, Target("tensorrt", (8, 6)))
    assert "join-axes" in edits
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5, 6)).astype(np.float32)
    np.testing.assert_allclose(run(rewritten, {"x": x})[0], run(proto, {"x": x})[0], rtol=1e-4, atol=1e-5)
    assert "join-axes" not in both(text, 17)[2]


@pytest.mark.parametrize("shape", ["2,3,4,5", "n,m,4,5", "n,m,h,w"])
@pytest.mark.parametrize("upper", [0, 1])
def test_triangles_of_many_axes_for_tensorrt_8(shape: str, upper: int) -> None:
    text = f"(float[{shape}] x) => (float[{shape}] y) <int64 k = {{1}}> {{ y = Trilu <upper = {upper}> (x, k) }}"
    proto, rewritten, edits = both(text, 17, Target("tensorrt", (8, 6)))
    assert "join-axes" in edits
    assert_equal(proto, rewritten, x=np.arange(1, 121, dtype=np.float32).reshape(2, 3, 4, 5))


def test_a_triangle_of_booleans_for_tensorrt_8() -> None:
    text = "(bool[2,3,4,4] x) => (bool[2,3,4,4] y) { y = Trilu <upper = 0> (x) }"
    _, rewritten, edits = both(text, 17, Target("tensorrt", (8, 6)))
    assert {"join-axes", "compute-wider"} <= edits
    x = np.random.default_rng(0).random((2, 3, 4, 4)) < 0.5
    # Older versions of ONNX Runtime have no Trilu of int32.
    (y,) = ReferenceEvaluator(rewritten).run(None, {"x": x})
    np.testing.assert_array_equal(y, np.tril(x))
    assert both(text, 17)[2] == set()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sign_of_integers_for_tensorrt_8(dtype: str) -> None:
    text = f"({dtype}[n] x) => ({dtype}[n] y) {{ y = Sign (x) }}"
    proto, rewritten, edits = both(text, 17, Target("tensorrt", (8, 6)))
    assert edits == {"compare-for-sign"}
    assert_equal(proto, rewritten, x=np.array([-(1 << 31), -1, 0, 1, (1 << 31) - 1], dtype))


@pytest.mark.parametrize("source", ["float", "float16", "int64"])
def test_a_cast_to_int8_cuts_off(source: str) -> None:
    text = f"({source}[n] x) => (int8[n] y) {{ y = Cast <to = 3> (x) }}"
    proto, rewritten, edits = both(text, 17)
    assert ("compute-wider" in edits) is (source != "int64")
    kind = np.dtype({"float": "float32"}.get(source, source))
    assert_equal(proto, rewritten, x=np.array([-2.7, -0.5, 0.5, 1.5, 2.5, 99.9, -128, 127], kind))


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_roots_and_logarithms_of_integers_are_left(op: str) -> None:
    text = f"(int32[2,3] x) => (int32[2,3] y) {{ y = {op} <noop_with_empty_axes = 1> (x) }}"
    assert "write-elementwise" not in both(text, 18)[2]


@pytest.mark.parametrize("op", ["Relu", "Sign"])
@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_what_is_computed_wider_is_so_in_forms_that_the_target_has(op: str, dtype: str) -> None:
    text = f"({dtype}[4] x) => ({dtype}[4] y) {{ y = {op} (x) }}"
    _, rewritten, _ = both(text, 17, Target("tensorrt", (8, 6)))
    assert all(node.op_type != op for node in rewritten.graph.node)
    x = np.array([0, 1, 100, 200 if dtype == "uint8" else -3], dtype)
    expected = np.sign(x) if op == "Sign" else np.maximum(x, 0)
    np.testing.assert_array_equal(run(rewritten, {"x": x})[0], expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("target", [RTX, Target("tensorrt", (8, 6))], ids=str)
def test_scatters_of_few_bits(dtype: str, reduction: str, target: Target) -> None:
    inputs = f"{dtype}[4] x, int64[3] i, {dtype}[3] u"
    text = f'({inputs}) => ({dtype}[4] y) {{ y = ScatterElements <reduction = "{reduction}"> (x, i, u) }}'
    _, rewritten, edits = both(text, 18, target)
    is_left = target != RTX and dtype == "int16" and reduction in ("add", "mul")
    assert ("scatter-by-position" in edits) is not is_left
    if is_left:
        return
    x, indices, updates = np.array([0, 5, 7, 100], dtype), np.array([0, 0, 2]), np.array([1, 9, 3], dtype)
    expected = x.copy()
    {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction].at(expected, indices, updates)
    # Older versions of ONNX Runtime have no Where of int8.
    (y,) = ReferenceEvaluator(rewritten).run(None, {"x": x, "i": indices, "u": updates})
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("tables", ["n,m,2", "b,s,2", "b,s,n"])
def test_rotations_by_tables_of_their_own(tables: str) -> None:
    inputs = f"float[b,3,s,4] x, float[{tables}] c, float[{tables}] d"
    edits = both(f"({inputs}) => (float[b,3,s,4] y) {{ y = RotaryEmbedding (x, c, d) }}", 23)[2]
    # Sizes that go by no number are all alike to the parser.
    assert ("expand-functions" in edits) is (tables == "b,s,n")


@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_nearest_places_by_sizes_are_exact(mode: str, rounding: str) -> None:
    for size, count in itertools.product(range(1, 45), range(1, 60)):
        rows = nearest(ResizedAxis(size, count, count / size), Interpolation("nearest", mode, rounding))
        for i, row in enumerate(rows.tolist()):
            place = {
                "half_pixel": Fraction((2 * i + 1) * size, 2 * count) - Fraction(1, 2),
                "asymmetric": Fraction(i * size, count),
                "align_corners": Fraction(i * (size - 1), max(count - 1, 1)),
                "tf_half_pixel_for_nn": Fraction((2 * i + 1) * size, 2 * count),
            }[mode]
            whole = {
                "floor": math.floor(place),
                "ceil": math.ceil(place),
                "round_prefer_floor": math.ceil(place - Fraction(1, 2)),
                "round_prefer_ceil": math.floor(place + Fraction(1, 2)),
            }[rounding]
            assert row == min(max(whole, 0), size - 1), (size, count, i)


@pytest.mark.parametrize(
    ("modes", "scale", "is_written"),
    [
        ("half_pixel ceil", 3, True),
        ("half_pixel floor", 3, False),
        ("half_pixel ceil", 2, False),
        ("asymmetric ceil", 7, True),
        ("asymmetric floor", 7, False),
        ("asymmetric floor", 41, True),
        ("align_corners floor", 3, True),
        ("align_corners ceil", 3, False),
        ("align_corners floor", 0.04, False),
        # Its corners are those of the sizes, 25 and 37, or of the scale.
        ("align_corners floor", 1.5, False),
        ("align_corners round_prefer_ceil", 1.1, False),
        # What keeps its size is copied.
        ("half_pixel floor", 1.02, False),
        ("asymmetric ceil", 1.02, False),
        # The sizes are another scale: 25 to 37.
        ("half_pixel floor", 1.5, False),
        ("asymmetric floor", 1.5, False),
        # Which elements these are depends on how their scales are rounded.
        ("asymmetric floor", 0.6, False),
        ("half_pixel ceil", 1.2, False),
    ],
)
def test_what_lies_on_a_border_is_gathered_where_float32_misses_it(modes: str, scale: float, is_written: bool) -> None:
    coordinates, rounding = modes.split()
    size = 25
    text = f"""(float[1,1,{size}] x) => (float[1,1,{int(size * scale)}] y) <float[3] s = {{1, 1, {scale}}}>
    {{ y = Resize <mode = "nearest", coordinate_transformation_mode = "{coordinates}", nearest_mode = "{rounding}">
           (x, "", s) }}"""
    proto, rewritten, edits = both(text, 17)
    assert (edits == {"resize-by-matrix"}) is is_written
    x = np.arange(size, dtype=np.float32).reshape(1, 1, -1)
    assert_equal(proto, rewritten, x=x)
    if is_written:
        assert [node.op_type for node in rewritten.graph.node] == ["Gather", "Identity"]
    dynamic = text.replace(f"1,{size}]", "1,n]").replace(f"1,{int(size * scale)}]", "1,m]")
    assert not both(dynamic, 17)[2]


@pytest.mark.parametrize("mode", ["half_pixel", "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("is_listed", [False, True])
def test_an_axis_is_gathered_alone_where_digits_decide_along_another(mode: str, is_listed: bool) -> None:
    more, scales = ("axes = [2, 1], ", "0.6, 3") if is_listed else ("", "1, 3, 0.6")
    text = f"""(float[2,5,5] x) => (float[2,15,3] y) <float[{2 if is_listed else 3}] s = {{{scales}}}>
    {{ y = Resize <{more}mode = "nearest", coordinate_transformation_mode = "{mode}",
                   nearest_mode = "{"ceil" if mode == "half_pixel" else "floor"}"> (x, "", s) }}"""
    proto, rewritten, edits = both(text, 18)
    assert edits == {"resize-by-matrix"}
    # By 3 none of tf_half_pixel_for_nn lies halfway between two.
    ops = [node.op_type for node in rewritten.graph.node]
    assert ops == (["Gather", "Resize"] if mode == "half_pixel" else ["Resize"])
    x = np.arange(50, dtype=np.float32).reshape(2, 5, 5)
    assert_equal(proto, rewritten, x=x)


@pytest.mark.parametrize(
    ("modes", "scales", "ops"),
    [
        # What is left would keep its size, and be copied.
        ("half_pixel ceil", "3, 1.2", ["Resize"]),
        ("half_pixel ceil", "3, 1.7", ["Gather", "Gather", "Identity"]),
        # One element of 1.5, at 0 or at 1.17.
        ("pytorch_half_pixel ceil", "7, 0.75", ["Gather", "Resize"]),
    ],
)
def test_an_axis_that_may_be_read_otherwise_stays(modes: str, scales: str, ops: list[str]) -> None:
    coordinates, rounding = modes.split()
    text = f"""(float[4,2] x) => (float[a,b] y) <float[2] s = {{{scales}}}>
    {{ y = Resize <mode = "nearest", coordinate_transformation_mode = "{coordinates}", nearest_mode = "{rounding}">
           (x, "", s) }}"""
    proto, rewritten, _ = both(text, 17)
    assert [node.op_type for node in rewritten.graph.node] == ops
    assert_equal(proto, rewritten, x=np.arange(8, dtype=np.float32).reshape(4, 2))


def test_sizes_along_all_axes_are_gathered() -> None:
    text = """(float[2,5,5] x) => (float[2,15,20] y) <int64[3] s = {2, 15, 20}>
    { y = Resize <mode = "nearest", nearest_mode = "ceil"> (x, "", "", s) }"""
    proto, rewritten, edits = both(text, 18)
    assert edits == {"resize-by-matrix"}
    assert [node.op_type for node in rewritten.graph.node] == ["Gather", "Gather", "Identity"]
    assert_equal(proto, rewritten, x=np.arange(50, dtype=np.float32).reshape(2, 5, 5))


@pytest.mark.parametrize("opset", [12, 13, 17])
def test_a_mask_of_what_nothing_is_dropped_from_for_tensorrt_8(opset: int) -> None:
    text = "(float[n,3] x) => (float[n,3] y, bool[n,3] m) { y, m = Dropout (x) }"
    proto, rewritten, edits = both(text, opset, Target("tensorrt", (8, 6)))
    assert "drop-nothing" in edits and "drop-nothing" not in both(text, opset)[2]
    assert_equal(proto, rewritten, x=np.arange(6, dtype=np.float32).reshape(2, 3))
    alone = "(float[n,3] x) => (float[n,3] y) { y = Dropout (x) }"
    assert "drop-nothing" not in both(alone, opset, Target("tensorrt", (8, 6)))[2]


@pytest.mark.parametrize(
    "exponent",
    [
        "int32 e = {3}",
        "int64[1] e = {2}",
        "float e = {8}",
        "float[1,1] e = {2}",
        "int32 e = {1}",
        "int64 e = {0}",
        "int64[2,1] e = {4,5}",
        "float[2,3] e = {0,1,2,3,4,5}",
        "int64[3,1,3] e = {0,0,0,1,1,1,9,2,0}",
        "int64[1,2,3] e = {1,1,1,1,1,1}",
    ],
)
def test_small_powers_of_integers_on_tensorrt_8(exponent: str) -> None:
    size = {"int64[3,1,3]": "3,2,n", "int64[1,2,3]": "1,2,n"}.get(exponent.partition(" ")[0], "2,n")
    text = f"(int32[2,n] x) => (int32[{size}] y) <{exponent}> {{ y = Pow (x, e) }}"
    proto, rewritten, edits = both(text, 17, Target("tensorrt", (8, 6)))
    assert edits == {"multiply-for-power"}
    assert_equal(proto, rewritten, x=np.array([[-3, 0, 1], [2, 7, -9]], np.int32))


@pytest.mark.parametrize(
    ("exponent", "target"),
    [
        *((each, Target("tensorrt", (8, 6))) for each in ("int32 e = {63}", "int32 e = {-1}", "float e = {2.5}")),
        ("int32[2] e = {2, -3}", Target("tensorrt", (8, 6))),
        ("int32 e = {2}", RTX),
    ],
)
def test_other_powers_are_left(exponent: str, target: Target) -> None:
    assert both(f"(int32[2,2] x) => (int32[2,2] y) <{exponent}> {{ y = Pow (x, e) }}", 17, target)[2] == set()


@pytest.mark.parametrize("exponent", ["int64 e = {3}", "int32[3] e = {-1, 0, 5}", ""])
@pytest.mark.parametrize("kind", ["float", "float16"])
def test_integers_that_are_exponents_of_floats_on_tensorrt_8(kind: str, exponent: str) -> None:
    late = "" if exponent else ", int64[3] e"
    text = f"({kind}[2,3] x{late}) => ({kind}[2,3] y) {f'<{exponent}>' if exponent else ''} {{ y = Pow (x, e) }}"
    proto, rewritten, edits = both(text, 17, Target("tensorrt", (8, 6)))
    assert edits == {"multiply-for-power"}
    (power,) = (node for node in rewritten.graph.node if node.op_type == "Pow")
    assert power.input[1] != "e"
    x = np.array([[-3, 0.5, 1], [2, 7, -1.5]], np.float32 if kind == "float" else np.float16)
    assert_equal(proto, rewritten, x=x, **({"e": np.array([2, 0, 3])} if late else {}))
    assert "multiply-for-power" not in both(text, 17)[2]


@pytest.mark.parametrize(
    ("kind", "exponent", "is_written"),
    [
        ("float16", 2049, False),
        ("float16", 2048, True),
        ("float16", 70000, False),
        ("float", 16777217, False),
        ("float", 16777216, True),
    ],
)
@pytest.mark.filterwarnings("error")
def test_integers_that_a_float_has_not_are_no_exponents(kind: str, exponent: int, is_written: bool) -> None:
    text = f"({kind}[2] x) => ({kind}[2] y) <int64 e = {{{exponent}}}> {{ y = Pow (x, e) }}"
    assert both(text, 17, Target("tensorrt", (8, 6)))[2] == ({"multiply-for-power"} if is_written else set())


@pytest.mark.parametrize("size", ["scales", "sizes"])
def test_resizes_that_need_nothing_are_looked_at_within_bounds_and_not_spoken_of(size: str) -> None:
    plain = 'mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
    stored, call = {
        "scales": ("float[3] s = {1, 1, 1000000000}", '(x, "", s)'),
        "sizes": ("int64[3] s = {1, 1, 3000000000}", '(x, "", "", s)'),
    }[size]
    for shape in ("[1,1,3]", "[1,1,0]", ""):
        proto = parser.parse_model(f"""<ir_version: 9, opset_import: ["": 17]>
        g (float{shape} x) => (float y) <{stored}> {{ y = Resize <{plain}> {call} }}""")
        del proto.graph.output[0].type.tensor_type.shape.dim[:]
        if not shape:
            proto.graph.input[0].type.tensor_type.ClearField("shape")
        proto.graph.output[0].type.tensor_type.ClearField("shape")
        done = run_passes(wrap(proto), PASSES, RTX)
        assert (done.edits, done.skipped) == ((), ())
