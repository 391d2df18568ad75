"""Axes that are computed, or known only at run time, follow from the shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

from support.onnx_models import parse, wrap
from support.session import run
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes

RTX = Target("rtx", (1, 7))
TRT8 = Target("tensorrt", (8, 6))


def reduction(op: str, shape: list[int], after: list[int], keep: int, noop: int = 0) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    axes = helper.make_tensor_value_info("axes", onnx.TensorProto.INT64, ["n"])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, after)
    node = helper.make_node(op, ["x", "axes"], ["y"], keepdims=keep, noop_with_empty_axes=noop)
    graph = helper.make_graph([node], "g", [x, axes], [y])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])


@given(
    st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=4),
    st.sets(st.integers(0, 3), min_size=1),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("ReduceSum", "ReduceMax", "ReduceL2", "ReduceMean")),
)
def test_axes_known_only_at_run_time_follow_from_the_shapes(
    shape: list[int], chosen: set[int], keep: bool, negative: bool, op: str
) -> None:
    axes = sorted(axis for axis in chosen if axis < len(shape)) or [0]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    after = list(np.sum(x, axis=tuple(axes), keepdims=keep).shape)
    proto = reduction(op, shape, after, int(keep))
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, RTX)
    reducing = [node for node in rewritten.proto.graph.node if node.op_type == op]
    assert done.edits and all("axes" not in node.input for node in reducing)
    feeds = {"x": x, "axes": np.array([axis - len(shape) if negative else axis for axis in axes], np.int64)}
    (before,), (got,) = (ReferenceEvaluator(each).run(None, feeds) for each in (proto, rewritten.proto))
    np.testing.assert_allclose(got, before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("noop", "after"), [(1, [2, 3]), (0, [1, 1])])
def test_no_axes_at_run_time(noop: int, after: list[int]) -> None:
    proto = reduction("ReduceL1", [2, 3], after, 1, noop)
    rewritten = wrap(proto)
    run_passes(rewritten, PASSES, RTX)
    feeds = {"x": -np.ones((2, 3), np.float32), "axes": np.array([], np.int64)}
    expected = np.ones((2, 3)) if noop else np.full((1, 1), 6.0)
    np.testing.assert_array_equal(ReferenceEvaluator(rewritten.proto).run(None, feeds)[0], expected)


@pytest.mark.parametrize(
    "text",
    [
        """(float[2,3,4] x) => (float[2,1,1] y) <int64 one = {1}>
        { s = Shape (x)  n = Size (s)  axes = Range (one, n, one)  y = ReduceMean (x, axes) }""",
        """(float[N,3,4] x) => (float[N,1,4] y) <int64[1] all = {2}, int64[1] one = {1}>
        { axes = Sub (all, one)  y = ReduceMax (x, axes) }""",
    ],
)
def test_axes_of_constants_and_shapes_become_constants(text: str) -> None:
    rewritten = wrap(parse(f'<ir_version: 8, opset_import: ["": 18]> g {text}'))
    original = wrap(rewritten.proto)
    done = run_passes(rewritten, PASSES, RTX)
    assert [edit.pass_name for edit in done.edits] == ["fix-arguments"]
    assert len(rewritten.proto.graph.node) == 1
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    before, after = (ReferenceEvaluator(each.proto).run(None, {"x": x})[0] for each in (original, rewritten))
    np.testing.assert_allclose(after, before, rtol=1e-5)


@pytest.mark.parametrize(
    ("op", "before", "after", "axes"), [("Unsqueeze", "2,3", "2,1,3", [1]), ("Squeeze", "N,1,3", "N,3", [1])]
)
def test_axes_of_size_one_at_run_time(op: str, before: str, after: str, axes: list[int]) -> None:
    text = f"(float[{before}] x, int64[1] axes) => (float[{after}] y) {{ y = {op} (x, axes) }}"
    proto = parse(f'<ir_version: 8, opset_import: ["": 13]> g {text}')
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, RTX)
    assert [edit.pass_name for edit in done.edits] == ["reshape-by-shape"]
    x = np.ones([2 if size == "N" else int(size) for size in before.split(",")], np.float32)
    got = ReferenceEvaluator(rewritten.proto).run(None, {"x": x, "axes": np.array(axes, np.int64)})[0]
    assert got.shape == ReferenceEvaluator(proto).run(None, {"x": x, "axes": np.array(axes, np.int64)})[0].shape


def test_axes_of_a_slice_in_a_branch_become_constants_for_tensorrt_8() -> None:
    text = """(float[3,N] x, bool c) => (float[a,b] y) <int64 one = {1}, int64[1] zero = {0}, int64[1] end = {2}>
    { y = If (c) <then_branch = t () => (float[a,b] p) { axes = Unsqueeze (one, zero) p = Slice (x, zero, end, axes) },
                  else_branch = e () => (float[a,b] q) { q = Identity (x) }> }"""
    for target, names in ((TRT8, ["fix-arguments"]), (RTX, [])):
        rewritten = wrap(parse(f'<ir_version: 8, opset_import: ["": 17]> g {text}'))
        done = run_passes(rewritten, PASSES, target)
        assert [edit.pass_name for edit in done.edits] == names
        feeds = {"x": np.arange(9, dtype=np.float32).reshape(3, 3), "c": np.array(True)}
        np.testing.assert_array_equal(ReferenceEvaluator(rewritten.proto).run(None, feeds)[0], feeds["x"][:, :2])


@pytest.mark.parametrize(("places", "axis"), [("{1}", -1), ("{1}", 0), ("{-3,0}", 0), ("{-3,7}", 1)])
def test_a_list_of_one_hot_is_gathered_for_tensorrt_8(places: str, axis: int) -> None:
    # torch's older exporter repeats a batch so, by 1 along all axes, and by a number of the input along one.
    count = places.count(",") + 1
    proto = parse(f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[n,3,2] x) => (int64[m] y)
    <int64[{count}] at = {places}, int64 depth = {{4}}, int64[1] one = {{1}}, int64[1] flat = {{-1}}> {{
      s = Shape <start = 0, end = 1> (x)  values = Concat <axis = 0> (one, s)
      hot = OneHot <axis = {axis}> (at, depth, values)  y = Reshape (hot, flat)
    }}""")
    rewritten = wrap(onnx.ModelProto.FromString(proto.SerializeToString()))
    done = run_passes(rewritten, PASSES, TRT8)
    assert "compare-positions" in {edit.pass_name for edit in done.edits}
    (gather,) = (node for node in rewritten.proto.graph.node if "y" in node.output)
    assert gather.op_type == "Gather"
    feeds = {"x": np.zeros((5, 3, 2), np.float32)}
    before, after = (ReferenceEvaluator(each).run(None, feeds)[0] for each in (proto, rewritten.proto))
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(
    "nodes",
    [
        "hot = OneHot (at, late, v)  y = Reshape (hot, flat)",
        "hot = OneHot (late, n, v)  y = Reshape (hot, flat)",
        "hot = OneHot (at, most, v)  y = Reshape (hot, flat)",
        "hot = OneHot (at, n, v)  y = Reshape (hot, square)",
    ],
)
def test_other_one_hots_are_no_lists(nodes: str) -> None:
    proto = parse(f"""<ir_version: 8, opset_import: ["": 17]>
    g (int64[1] late, float[2] v) => (float[{"a,b" if "square" in nodes else "a"}] y)
    <int64[1] at = {{1}}, int64 n = {{4}}, int64 most = {{5000}}, int64[1] flat = {{-1}}, int64[2] square = {{2,2}}>
    {{ {nodes} }}""")
    rewritten = wrap(proto)
    run_passes(rewritten, PASSES, TRT8)
    assert rewritten.proto.graph.node[-1].op_type == "Reshape"


def test_axes_that_nothing_tells_are_left() -> None:
    text = "(float[a,b] x, int64[1] axes) => (float[c,d] y) { y = ReduceSum (x, axes) }"
    proto = parse(f'<ir_version: 8, opset_import: ["": 18]> g {text}')
    done = run_passes(wrap(proto), PASSES, RTX)
    assert not done.edits
    assert [skip.pass_name for skip in done.skipped] == ["reduce-by-shape"]


@pytest.mark.parametrize(("length", "edits"), [("one", 1), ("1", 0)])
def test_the_number_of_a_topk_has_one_element(length: str, edits: int) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[2,4] x, int64[{length}] k) => (float[2,m] v, int64[2,m] i)
        {{ v, i = TopK (x, k) }}"""
    )
    rewritten = wrap(proto)
    assert [edit.pass_name for edit in run_passes(rewritten, PASSES, RTX).edits] == ["reshape-single-numbers"] * edits
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32), "k": np.array([3])}
    expected, got = (ReferenceEvaluator(each).run(None, feeds) for each in (proto, rewritten.proto))
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_array_equal(one, other)
    assert rewritten.scopes[0].shape(rewritten.proto.graph.node[-1].input[1]) == (1,)


def sliced(arrays: dict[str, NDArray[Any]], fed: tuple[str, ...]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 5])]
    inputs += [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, arrays[name].shape) for name in fed]
    constants = [onnx.numpy_helper.from_array(a, name) for name, a in arrays.items() if name not in fed]
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, "m"])
    graph = helper.make_graph([helper.make_node("Slice", ["x", *arrays], ["y"])], "g", inputs, [y], constants)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


@given(
    st.integers(-6, 6),
    st.integers(-6, 6),
    st.sampled_from([-2, -1, 1, 2]),
    st.sets(st.sampled_from(["starts", "ends", "axes", "steps"]), min_size=1),
    st.booleans(),
)
def test_a_slice_takes_numbers_without_axes(
    start: int, end: int, step: int, scalars: set[str], at_run_time: bool
) -> None:
    numbers = {"starts": start, "ends": end, "axes": 1, "steps": step}
    arrays = {name: np.array(n if name in scalars else [n], np.int64) for name, n in numbers.items()}
    fed = ("starts", "ends") if at_run_time else ()
    rewritten = wrap(sliced(arrays, fed))
    done = run_passes(rewritten, PASSES, RTX)
    assert [edit.pass_name for edit in done.edits] == ["reshape-single-numbers"]
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    (got,) = run(rewritten.proto, {"x": x, **{name: arrays[name] for name in fed}})
    lists = {name: array.reshape(1) for name, array in arrays.items()}
    (expected,) = run(sliced(lists, fed), {"x": x, **{name: lists[name] for name in fed}})
    np.testing.assert_array_equal(got, expected)


def test_an_expand_takes_a_number_without_axes() -> None:
    proto = parse(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1] x, int64 n) => (float[m] y) { y = Expand (x, n) }'
    )
    rewritten = wrap(proto)
    assert len(run_passes(rewritten, PASSES, RTX).edits) == 1
    (got,) = run(rewritten.proto, {"x": np.ones(1, np.float32), "n": np.array(4)})
    np.testing.assert_array_equal(got, np.ones(4))
