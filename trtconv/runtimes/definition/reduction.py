"""Reductions over no axes, and sums of integers.

With `noop_with_empty_axes` and no axes, a reduction still takes magnitudes, squares or logarithms of each element. ONNX
Runtime before 1.32 hands the input on, and refuses a node without the input `axes` (measured, 1.20 and 1.23). As a sum
around element-wise operators it is the same for any axes, even those that only the run time knows.

Source: ONNX operators ReduceL1, ReduceL2, ReduceLogSum, ReduceSumSquare and the others, opset 18.
"""

from __future__ import annotations

import onnx
from onnx import helper

from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing

_AROUND = {
    "ReduceL1": ("Abs", ""),
    "ReduceL2": ("Mul", "Sqrt"),
    "ReduceLogSum": ("", "Log"),
    "ReduceSumSquare": ("Mul", ""),
}
"""By operator, what stands before and behind the sum; nothing for an empty text."""
_PLAIN = ("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
REDUCTIONS = (*_AROUND, *_PLAIN)
_OPSETS = range(9, 1000)
"""Before, Cast takes types as texts."""


def write_reduction(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a reduction out that may have no axes."""
    node = scope.columns.nodes[index]
    attributes = {attribute.name: attribute.i for attribute in scope.columns.attributes[index]}
    if attributes.get("noop_with_empty_axes", 0) != 1:
        return _write_integer_sum(scope, index, writing)
    before, behind = _AROUND.get(node.op_type, ("", ""))
    tensor = node.input[0]
    if before:
        tensor = writing.compute(before, *[tensor] * (2 if before == "Mul" else 1))
    axes = node.input[1] if len(node.input) > 1 and node.input[1] else writing.constant([])
    op = "ReduceSum" if node.op_type in _AROUND else node.op_type
    tensor = writing.compute(op, tensor, axes, noop_with_empty_axes=1, keepdims=attributes.get("keepdims", 1))
    if behind:
        writing.compute(behind, tensor)
    writing.finish()
    return True


def _write_integer_sum(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a sum of int32 out in int64: ONNX Runtime stops at the largest int32, where NumPy and TensorRT go on from
    the smallest."""
    node = scope.columns.nodes[index]
    if node.op_type != "ReduceSum" or writing.opset not in _OPSETS or not _is_int32(scope, node.input[0]):
        return False
    wide = writing.compute("Cast", node.input[0], to=onnx.TensorProto.INT64)
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    total = writing.compute(node.op_type, wide, *node.input[1:], **attributes)
    writing.compute("Cast", total, to=onnx.TensorProto.INT32)
    writing.finish()
    return True


def _is_int32(scope: Scope, name: str) -> bool:
    """Whether a tensor holds int32; inference is only asked where that occurs, since it takes long."""
    graphs = [each.graph for each in scope.whole.scopes]
    inputs = any(v.type.tensor_type.elem_type == onnx.TensorProto.INT32 for graph in graphs for v in graph.input)
    cast = any(scope.by_op.get("Cast", ()) for scope in scope.whole.scopes)
    return (inputs or cast) and scope.dtype(name) == "int32"
