"""Bags at once beside ONNX Runtime's loop, where torch refuses what ONNX takes: its inputs are any there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from support.session import run, session
from unit.passes.test_spelling_bags import DATA, has_loop, is_last, rewritten

ROWS = 6
OFFSETS = [path.stem for path in sorted(DATA.glob("*off*.onnx"))]
VALUES = st.sampled_from([0.0, 1.0, -2.5, 3e38, np.inf, -np.inf, np.nan])
BOUNDS = st.integers(-2 * ROWS, 2 * ROWS) | st.sampled_from([-(2**40), 2**40])


def computed(name: str) -> onnx.ModelProto:
    """Returns an export whose table is an input, and whose output are the bags."""
    proto = onnx.load(DATA / f"{name}.onnx")
    table = next(tensor for tensor in proto.graph.initializer if tensor.name == "e.weight")
    proto.graph.initializer.remove(table)
    proto.graph.input.append(helper.make_tensor_value_info("e.weight", onnx.TensorProto.FLOAT, table.dims))
    return as_bags(proto)


def as_bags(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns an export without the linear layer behind the bags."""
    linear = proto.graph.node.pop()
    del proto.graph.output[:]
    proto.graph.output.append(helper.make_tensor_value_info(linear.input[0], onnx.TensorProto.FLOAT, [None, 8]))
    return proto


def hold(loop: Any, other: Any, feed: dict[str, np.ndarray]) -> None:
    (expected,) = loop.run(None, feed)
    (got,) = other.run(None, feed)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def feed_of(proto: onnx.ModelProto, offsets: Sequence[int], numbers: Sequence[int]) -> dict[str, np.ndarray]:
    feed = {"x": np.array(numbers), "o": np.array(offsets, np.int64)}
    if any(value.name == "w" for value in proto.graph.input):
        feed["w"] = np.linspace(-1, 2, len(numbers), dtype=np.float32)
    return feed


@pytest.mark.parametrize("name", OFFSETS)
def test_any_offsets_cut_out_what_a_slice_does(name: str) -> None:
    proto = as_bags(onnx.load(DATA / f"{name}.onnx"))
    written = rewritten(proto)
    assert not has_loop(written)
    loop, other = session(proto), session(written)
    if name in ("sum_off_script", "max_off_script"):
        # No bags are none; the sequence of the newer exporter may not be empty.
        hold(loop, other, feed_of(proto, [], range(ROWS)))

    @settings(max_examples=60)
    @given(st.lists(BOUNDS, min_size=2, max_size=5))
    @example([-4, -2, 6])
    @example([0, 9, 3, 3])
    @example([5, 2, -1, 40])
    @example([ROWS + 3, ROWS + 3])
    def check(offsets: list[int]) -> None:
        hold(loop, other, feed_of(proto, offsets, range(ROWS)))

    check()


@pytest.mark.parametrize("name", [name for name in OFFSETS if "max" not in name])
def test_no_bag_has_what_rows_outside_are(name: str) -> None:
    proto = computed(name)
    other = rewritten(proto)
    assert not has_loop(other)
    sessions = session(proto), session(other)

    @settings(max_examples=40)
    @given(st.lists(VALUES, min_size=ROWS, max_size=ROWS), st.lists(BOUNDS, min_size=2, max_size=4))
    @example([1.0, np.inf, 0, np.nan, -np.inf, 2], [0, 1, 2, 3])
    @example([1.0, np.inf, 0, 1, -np.inf, np.nan], [0, 3, 3])
    def check(values: list[float], offsets: list[int]) -> None:
        feed = feed_of(proto, offsets, range(ROWS))
        feed["e.weight"] = np.ones((50, 8), np.float32)
        feed["e.weight"][:ROWS] = np.array(values, np.float32)[:, None]
        hold(*sessions, feed)

    check()


@pytest.mark.parametrize("weight", [np.inf, np.nan])
@pytest.mark.parametrize("name", ["sum_offw_dynamo", "sum_offw_script"])
def test_infinite_weights_stay_in_their_bags(name: str, weight: float) -> None:
    proto = onnx.load(DATA / f"{name}.onnx")
    feed = feed_of(proto, [0, 2, 4], range(ROWS))
    feed["w"][1] = weight
    got = run(rewritten(proto), feed)[0]
    np.testing.assert_allclose(got, run(proto, feed)[0], rtol=1e-5, atol=1e-6)
    assert np.isfinite(got[1:]).all()


@pytest.mark.parametrize("name", [name for name in OFFSETS if "script" in name])
def test_a_number_that_no_bag_looks_up_may_be_no_row(name: str) -> None:
    proto = as_bags(onnx.load(DATA / f"{name}.onnx"))
    loop, other = session(proto), session(rewritten(proto))
    offsets = [2, 3, 5] if is_last(proto) else [2, 3, -1]
    hold(loop, other, feed_of(proto, offsets, [50, -51, 7, 49, -50, 3]))


LOOP = """d = Identity (c)  j = Add (i, one)  p = Gather (o, i)  q = Gather (o, j)
    s = Unsqueeze (p, zero)  e = Unsqueeze (q, zero)"""
ROWS_OF = "r = Slice (x, s, e, zero)  g = Gather (t, r)"
WEIGHTS = "u = Slice (w, s, e, zero)  v = Unsqueeze (u, one_axis)  g = Mul (k, v)"
WEIGHED = f"{ROWS_OF.replace('g =', 'k =')}  {WEIGHTS}"


def loop_of(step: str, inputs: str) -> onnx.ModelProto:
    """Returns a loop over bags of a constant table."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => (float[b,2] y)
        <int64 three = {{3}}, bool on = {{1}}, int64[1] zero = {{0}}, int32[1] zero32 = {{0}}, int64 one = {{1}},
         int64[1] one_axis = {{1}}, int64[1] two = {{2}}, int64 nil = {{0}}>
        {{ y = Loop <body = b (int64 i, bool c) => (bool d, float[2] z) {{ {LOOP} {step} }}> (three, on) }}"""
    )
    table = np.arange(18, dtype=np.float32).reshape(9, 2) + 1
    proto.graph.initializer.append(numpy_helper.from_array(table, "t"))
    return proto


SUM = "z = ReduceSum <keepdims = 0> (g, zero)"
LAST = """l = Sub (three, one)  a = Equal (i, l)
    g = If (a) <then_branch = t1 () => (ga) { f = Shape (x)  ra = Slice (x, s, f, zero)  ga = Gather (TABLE, ra) },
                else_branch = e1 () => (gb) { rb = Slice (x, s, e, zero)  gb = Gather (t, rb) }>"""
TO_THE_END, OF_ANOTHER = LAST.replace("TABLE", "t"), LAST.replace("TABLE", "t2")
NARROW = """s32 = Cast <to = 6> (s)  e32 = Cast <to = 6> (e)  r = Slice (x, s32, e32, zero32)  g = Gather (t, r)"""
TOTAL = f"{ROWS_OF}  k = ReduceSum <keepdims = 0> (g, zero)  f = Sub (q, p)  n = Cast <to = 1> (f)"
SHARED = "ii = Unsqueeze (i, zero)  s1 = Slice (o, ii, END, zero)  r = Slice (x, s1, e, zero)  g = Gather (t, r)"
GUARDED = """m = Greater (f, nil)
    z = If (m) <then_branch = t3 () => (za) { za = Div (k, n) }, else_branch = e3 () => (zb) { zb = Identity (k) }>"""


@pytest.mark.parametrize(
    ("step", "stays"),
    [
        pytest.param(f"{ROWS_OF}  {SUM}", False, id="sum"),
        pytest.param(f"{ROWS_OF}  z = ReduceMean <axes = [0], keepdims = 0> (g)", False, id="mean"),
        pytest.param(f"{TOTAL}  z = Div (k, n)", False, id="mean by the offsets"),
        pytest.param(f"{TOTAL}  {GUARDED}", False, id="mean by the offsets if there are rows"),
        pytest.param(f"{WEIGHED}  {SUM}", False, id="weights"),
        pytest.param(f"{TO_THE_END}  {SUM}", False, id="last rows to the end"),
        pytest.param(f"{OF_ANOTHER}  {SUM}", True, id="last rows of another table"),
        pytest.param(
            f"{TO_THE_END.replace('g =', 'k =')}  {WEIGHTS}  {SUM}", True, id="last rows times weights that end before"
        ),
        pytest.param(f"{NARROW}  {SUM}", True, id="offsets of int32"),
        pytest.param(f"{ROWS_OF.replace('zero)', 'zero, one_axis)')}  {SUM}", False, id="every row"),
        pytest.param(f"{ROWS_OF.replace('zero)', 'zero, two)')}  {SUM}", True, id="every other row"),
        pytest.param(f"g = Slice (t, s, e, one_axis)  {SUM}", True, id="columns"),
        pytest.param(f"jj = Unsqueeze (j, zero)  {SHARED.replace('END', 'jj')}  {SUM}", False, id="sliced offsets"),
        pytest.param(f"{SHARED.replace('END', 'one_axis')}  {SUM}", True, id="offsets to a fixed place"),
    ],
)
def test_a_loop_of_any_offsets_is_exact_or_stays(step: str, stays: bool) -> None:
    proto = loop_of(step, "int64[n] x, float[n] w, int64[4] o")
    proto.graph.initializer.append(numpy_helper.from_array(np.full((9, 2), 7, np.float32), "t2"))
    other = rewritten(proto)
    assert has_loop(other) == stays
    if stays:
        return
    for offsets in ([0, 2, 4, 5], [0, 2, 3, 3], [-5, -2, 4, 9], [4, 2, -9, 1], [9, -1, 5, -2]):
        feed = {"x": np.arange(5), "w": np.linspace(-1, 2, 5, dtype=np.float32), "o": np.array(offsets)}
        np.testing.assert_allclose(run(other, feed)[0], run(proto, feed)[0], rtol=1e-6)


def test_a_bag_of_rows_of_numbers_looks_up_lists() -> None:
    proto = loop_of(f"r = Slice (x, s, e, zero)  g = Gather (u, r)  {SUM}", "int64[n,2] x, int64[4] o")
    proto.graph.initializer.append(numpy_helper.from_array(np.arange(9, dtype=np.float32), "u"))
    other = rewritten(proto)
    assert not has_loop(other)
    feed = {"x": np.arange(8).reshape(4, 2), "o": np.array([0, 2, 2, 3])}
    # No bag has the last one.
    feed["x"][3] = 9
    np.testing.assert_allclose(run(other, feed)[0], run(proto, feed)[0])


@pytest.mark.parametrize("name", OFFSETS)
def test_finite_rows_are_multiplied_and_need_no_array_of_three_axes(name: str) -> None:
    nodes = [node.op_type for node in rewritten(as_bags(onnx.load(DATA / f"{name}.onnx"))).graph.node]
    assert ("MatMul" in nodes) == ("max" not in name)


@pytest.mark.parametrize(
    "made",
    [
        "y = ConcatFromSequence <axis = 0> (q)",
        "s = Identity (q)  y = ConcatFromSequence <axis = 0> (s)",
        "s = SequenceConstruct (x, x)  y = ConcatFromSequence <axis = 0> (s)",
    ],
)
def test_a_sequence_that_no_loop_made_stays(made: str) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (seq(float[n,2]) q, float[k,2] x) => (float[m,2] y)
        {{ {made} }}"""
    )
    assert rewritten(proto) == proto


@pytest.mark.parametrize(
    ("weights", "stays"), [("float[n] w", False), ("float[6] w", True), ("float[k] w", True)], ids=["n", "6", "k"]
)
def test_weights_are_of_as_many_rows(weights: str, stays: bool) -> None:
    proto = loop_of(f"{WEIGHED} {SUM}", f"int64[n] x, {weights}, int64[4] o")
    other = rewritten(proto)
    assert has_loop(other) == stays
    # Of the end of more weights than rows a loop takes the last ones.
    feed = {"x": np.arange(5), "w": np.arange(5 if weights == "float[n] w" else 6, dtype=np.float32)}
    feed["o"] = np.array([-2, -1, -1, -1])
    np.testing.assert_allclose(run(other, feed)[0], run(proto, feed)[0])


PRODUCT = "sx = Shape (x)  size = ReduceProd <keepdims = 0> (sx)"
SIZES = """h = Shape (x)  n0 = Gather (h, nil)  n1 = Gather (h, one)
    h0 = Shape <start = 0, end = 1> (x)  m0 = Squeeze (h0)  h1 = Shape <start = 1> (x)  m1 = Gather (h1, nil)"""


@pytest.mark.parametrize(
    ("size", "step", "is_grid"),
    [
        pytest.param(PRODUCT, "two", True, id="product"),
        pytest.param("size = Mul (n0, n1)", "two", True, id="size times size"),
        pytest.param("size = Mul (n1, n0)", "n1", True, id="size times size turned round"),
        pytest.param("size = Mul (m0, two)", "two", True, id="size of the first axis alone"),
        pytest.param("size = Mul (m0, one)", "two", False, id="as many as bags"),
        pytest.param("size = Mul (m1, n1)", "two", False, id="size of the second axis alone"),
        pytest.param("size = Mul (n0, n0)", "two", False, id="bags times bags"),
        pytest.param("size = Identity (two)", "two", False, id="fixed"),
        pytest.param(PRODUCT, "one", False, id="half a bag"),
        pytest.param(PRODUCT, "n0", False, id="as long as bags are many"),
    ],
)
@pytest.mark.parametrize("is_input", [True, False], ids=["input", "computed"])
def test_only_rows_of_a_grid_are_bags_of_one_length(size: str, step: str, is_grid: bool, is_input: bool) -> None:
    source = "int64[b,2] x, float u" if is_input else "int64[n] f, float u"
    made = "" if is_input else "x = Reshape (f, pairs)"
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g ({source}) => (float[c,2] y)
        <bool on = {{1}}, int64[1] zero = {{0}}, int64 one = {{1}}, int64 nil = {{0}}, int64 two = {{2}},
         int64[1] all = {{-1}}, int64[2] pairs = {{-1, 2}},
         float[9,2] t = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}}>
        {{ {made} {SIZES} {size}  r1 = Reshape (x, all)  l = Shape (r1)
          begins = Range (nil, size, {step})  o = Concat <axis = 0> (begins, l)
          sb = Shape (begins)  count = Gather (sb, nil)
          y = Loop <body = b (int64 i, bool c) => (bool d, float[2] z) {{
            {LOOP}  r = Slice (r1, s, e, zero)  g = Gather (t, r)  z = ReduceSum <keepdims = 0> (g, zero)
          }}> (count, on) }}"""
    )
    other = rewritten(proto)
    assert not has_loop(other)
    assert is_grid != any(node.op_type == "And" for node in other.graph.node)
    numbers = np.arange(6)
    feed = {"x": numbers.reshape(3, 2)} if is_input else {"f": numbers}
    feed["u"] = np.array(0, np.float32)
    np.testing.assert_allclose(run(other, feed)[0], run(proto, feed)[0])


def test_bags_of_one_length_end_with_the_rows() -> None:
    proto = onnx.load(DATA / "sum_2d_script.onnx")
    joined = next(node for node in proto.graph.node if node.op_type == "Concat")
    joined.input[1] = "end"
    proto.graph.initializer.append(numpy_helper.from_array(np.array([12]), "end"))
    feed = {proto.graph.input[0].name: np.arange(15).reshape(3, 5)}
    np.testing.assert_allclose(run(rewritten(proto), feed)[0], run(proto, feed)[0], rtol=1e-5, atol=1e-6)


def test_bags_of_one_length_may_be_divided_by_what_is_left_to_the_end() -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (int64[b,2] x) => (float[b,2] y)
        <bool on = {{1}}, int64[1] zero = {{0}}, int64 one = {{1}}, int64 nil = {{0}}, int64 two = {{2}},
         int64[1] all = {{-1}}, float[9,2] t = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}}>
        {{ r1 = Reshape (x, all)  l = Shape (r1)  sx = Shape (x)  size = ReduceProd <keepdims = 0> (sx)
          begins = Range (nil, size, two)  o = Concat <axis = 0> (begins, l)
          sb = Shape (begins)  count = Gather (sb, nil)
          y = Loop <body = b (int64 i, bool c) => (bool d, float[2] z) {{
            {LOOP}  r = Slice (r1, s, e, zero)  g = Gather (t, r)  k = ReduceSum <keepdims = 0> (g, zero)
            f = Sub (l, s)  n = Cast <to = 1> (f)  z = Div (k, n)
          }}> (count, on) }}"""
    )
    other = rewritten(proto)
    assert not has_loop(other)
    feed = {"x": np.arange(6).reshape(3, 2)}
    np.testing.assert_allclose(run(other, feed)[0], run(proto, feed)[0])
