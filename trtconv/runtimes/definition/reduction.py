"""Reductions over no axes, sums of integers, and the largest and smallest of no integers.

With `noop_with_empty_axes` and no axes, a reduction still takes magnitudes, squares or logarithms of each element. ONNX
Runtime before 1.32 hands the input on, and refuses a node without the input `axes` (measured, 1.20 and 1.23). As a sum
around element-wise operators it is the same for any axes, even those that only the run time knows. The largest of no
integers is the smallest that the type has; ONNX Runtime 1.23 says 0.

Source: ONNX operators ReduceL1, ReduceL2, ReduceLogSum, ReduceSumSquare and the others, opset 18.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from trtconv.graph.attributes import attributes_of
from trtconv.graph.scope import Scope
from trtconv.graph.types import INTEGERS
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
_EXTREMES = {"ReduceMax": "min", "ReduceMin": "max"}
"""By operator, which end of its type is the result over nothing."""
_INTEGERS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
_BOOL = onnx.TensorProto.BOOL
_OPSETS = range(9, 1000)
"""Before, Cast takes types as texts."""


def write_reduction(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a reduction out that may have no axes."""
    node = scope.columns.nodes[index]
    attributes = {attribute.name: attribute.i for attribute in scope.columns.attributes[index]}
    if attributes.get("noop_with_empty_axes", 0) != 1:
        return _write_integer_extreme(scope, index, writing) or _write_integer_sum(scope, index, writing)
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


def _write_integer_extreme(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes the largest or smallest of integers so that over nothing it is that end of their type."""
    node = scope.columns.nodes[index]
    if node.op_type not in _EXTREMES or writing.opset not in _OPSETS:
        return False
    dtype = _integers(scope, node.input[0])
    if dtype is None or all(scope.shape(node.input[0]) or (0,)):
        return False
    end = np.array(getattr(np.iinfo(dtype), _EXTREMES[node.op_type]), dtype)
    attributes = _attributes(node)
    usual = writing.compute(node.op_type, *node.input, **attributes)
    over_nothing = writing.compute("Not", writing.compute("Cast", writing.compute("Size", node.input[0]), to=_BOOL))
    writing.compute("Where", over_nothing, writing.compute("Constant", value=numpy_helper.from_array(end)), usual)
    writing.finish()
    return True


def _write_integer_sum(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a sum of int32 out in int64: ONNX Runtime stops at the largest int32, where NumPy and TensorRT go on from
    the smallest."""
    node = scope.columns.nodes[index]
    if node.op_type != "ReduceSum" or writing.opset not in _OPSETS or _integers(scope, node.input[0]) != "int32":
        return False
    wide = writing.compute("Cast", node.input[0], to=onnx.TensorProto.INT64)
    attributes = _attributes(node)
    total = writing.compute(node.op_type, wide, *node.input[1:], **attributes)
    writing.compute("Cast", total, to=onnx.TensorProto.INT32)
    writing.finish()
    return True


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Returns the attributes of a node but empty lists: over no axes of an attribute all are reduced."""
    return {name: value for name, value in attributes_of(node).items() if value != []}


def _integers(scope: Scope, name: str) -> str | None:
    """Returns "int32" or "int64" for a tensor of these; inference, which takes long, is only asked where such occur."""
    graphs = [other.graph for other in scope.whole.scopes]
    inputs = any(value.type.tensor_type.elem_type in _INTEGERS for graph in graphs for value in graph.input)
    cast = any(scope.by_op.get("Cast", ()) for scope in scope.whole.scopes)
    dtype = scope.dtype(name) if inputs or cast else None
    return dtype if dtype in INTEGERS else None
