"""Shapes of some axes, and ranges up to one of them, as TensorRT 8.6 reads them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from support.onnx_models import parse, wrap
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes

EIGHT, TEN = Target("tensorrt", (8, 6)), Target("tensorrt", (10, 0))


@given(
    st.lists(st.integers(1, 4), max_size=4),
    st.integers(-5, 5) | st.none(),
    st.integers(-5, 5) | st.none(),
    st.booleans(),
)
def test_a_shape_of_some_axes_is_taken_from_the_whole(
    shape: list[int], start: int | None, end: int | None, dynamic: bool
) -> None:
    attributes = {name: value for name, value in (("start", start), ("end", end)) if value is not None}
    node = helper.make_node("Shape", ["x"], ["y"], **attributes)
    sizes = [f"d{axis}" for axis in range(len(shape))] if dynamic else shape
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)
    graph = helper.make_graph([node], "g", [x], [y])
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 15)])
    model = wrap(proto)
    run_passes(model, PASSES, EIGHT)
    assert not any(node.attribute for node in model.proto.graph.node if node.op_type == "Shape")
    feeds = {"x": np.zeros(shape, np.float32)}
    (got,) = ReferenceEvaluator(model.proto).run(None, feeds)
    # As ONNX says it; its own reference takes an end before the first axis for one behind it.
    rank = len(shape)
    first, last = (max(0, at + rank if at < 0 else at) for at in (start or 0, rank if end is None else end))
    assert got.dtype == np.int64 and got.tolist() == shape[first:last]


RANGE = """<ir_version: 8, opset_import: ["": 15]>
g (float[n,m] x) => (int64[k] y) <int64 zero = {0}, int64[1] one = {1}>
{ n = Shape <start = %s, end = %s> (x)  y = Range (zero, n, one) }"""


@pytest.mark.parametrize("axis", [0, 1])
def test_limits_of_a_range_are_scalars(axis: int) -> None:
    proto = parse(RANGE % (axis, axis + 1))
    model = wrap(proto)
    run_passes(model, PASSES, EIGHT)
    inferred = onnx.shape_inference.infer_shapes(model.proto)
    ranks = {each.name: len(each.type.tensor_type.shape.dim) for each in inferred.graph.value_info}
    ranks |= {each.name: len(each.dims) for each in inferred.graph.initializer}
    (node,) = [each for each in inferred.graph.node if each.op_type == "Range"]
    assert [ranks[name] for name in node.input] == [0, 0, 0]
    feeds = {"x": np.zeros((3, 5), np.float32)}
    assert ReferenceEvaluator(model.proto).run(None, feeds)[0].tolist() == list(range((3, 5)[axis]))


def test_a_range_of_vectors_is_written_for_all_targets() -> None:
    """Newer parsers read it, but the ONNX Runtime of a proof does not load it."""
    model = wrap(parse(RANGE % (0, 1)))
    assert [edit.pass_name for edit in run_passes(model, PASSES, TEN).edits] == ["scalar-range"]


ATTENTION = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,4,%d,8] q, float[2,4,8,6] k, float[2,4,6,8] v, float[%d,1,1,6] m) => (float[2,4,%d,8] y)
{ s = MatMul (q, k)  b = %s (m, s)  p = Softmax (b)  y = MatMul (p, v) }"""


@pytest.mark.parametrize(
    ("queries", "op", "masks", "doubled"),
    [(1, "Add", 2, 2), (2, "Add", 2, 0), (1, "Mul", 2, 0), (1, "Add", 1, 2)],
)
def test_masked_attention_over_one_query_is_doubled_for_8(queries: int, op: str, masks: int, doubled: int) -> None:
    for target, expected in ((EIGHT, doubled), (TEN, 0)):
        model = wrap(parse(ATTENTION % (queries, masks, queries, op)))
        edits = [each.pass_name for each in run_passes(model, PASSES, target).edits]
        assert edits.count("double-one-row") == expected
