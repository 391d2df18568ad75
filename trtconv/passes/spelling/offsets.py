"""Lists of offsets, as exporters put them together: what they are copies of, the end of, or the length of."""

from __future__ import annotations

import numpy as np
import onnx

from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope

_COPIES = ("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze")
"""Of single numbers, and of lists of them."""
_COUNTING = frozenset({onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE})
"""Types that have every number of rows; int32 makes offsets far beyond all rows others."""
_PARTS = ("Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Slice", "Gather")
"""Operators that make of the elements of their first input no others."""
_HIGHEST = float(np.finfo(np.float16).max)
Sizes = tuple[int | str | tuple[str, int], ...]
TO_THE_END = np.iinfo(np.int64).max


def length_of(scope: Scope, name: str) -> str:
    """Returns the list whose length a tensor is; flattened ones stand for what they were. Empty where it is none."""
    node = copied(scope, name)
    if node is not None and node.op_type == "Gather":
        index = scope.values(node.input[1])
        is_first = index is not None and not index.any()
        node = scope.producer(node.input[0]) if is_first else None
    return flat_of(scope, node.input[0]) if node is not None and node.op_type in ("Shape", "Size") else ""


def flat_of(scope: Scope, name: str) -> str:
    """Returns the list that a list is a copy of; empty where it is no list."""
    if len(scope.shape(name) or ()) != 1:
        return ""
    while (node := scope.producer(name)) is not None and node.op_type in ("Identity", "Cast", "Reshape"):
        if len(scope.shape(node.input[0]) or ()) != 1:
            break
        name = node.input[0]
    return name


def rest_of(scope: Scope, name: str) -> tuple[str, int] | None:
    """Returns the list that a list is the end of, and from which place on; None where it is no end of one."""
    node = scope.producer(name)
    if node is None or node.op_type != "Slice" or len(node.input) < 3:
        return None
    bounds = [scope.values(bound) for bound in node.input[1:]]
    begin, end, *more = [[] if values is None else values.tolist() for values in bounds]
    if end != [TO_THE_END] or more not in ([], [[0]], [[0], [1]]) or not begin or begin[0] < 0:
        return None
    return node.input[0], begin[0]


def copied(scope: Scope, name: str) -> onnx.NodeProto | None:
    """Returns the node that makes a number or a list, through copies of it."""
    node = scope.producer(name)
    while node is not None and is_copy(node):
        node = scope.producer(node.input[0])
    return node


def is_copy(node: onnx.NodeProto) -> bool:
    """Whether a node makes the same numbers of numbers of rows."""
    return node.op_type in _COPIES and (node.op_type != "Cast" or attribute(node, "to") in _COUNTING)


def row_count(scope: Scope, name: str) -> Sizes:
    """Returns sizes whose product is the size of axis 0: numbers, names of the graph's, or an axis of a tensor."""
    sizes, node = _sizes(scope, name), scope.producer(name)
    if node is None or not sizes or isinstance(sizes[0], int):
        return sizes[:1]
    source = node.input[0] if node.input else ""
    # An axis that is added has a size that is known.
    if node.op_type in ("Identity", "Cast", "Unsqueeze"):
        return row_count(scope, source)
    if node.op_type == "Gather" and not attribute(node, "axis", 0) and scope.shape(node.input[1]):
        return row_count(scope, node.input[1])
    if node.op_type == "Reshape" and len(sizes) == 1:
        return row_count(scope, source) if len(_sizes(scope, source)) == 1 else _sizes(scope, source) or sizes
    if node.op_type == "Mul":
        counts = {row_count(scope, factor) for factor in node.input}
        return counts.pop() if len(counts) == 1 else sizes[:1]
    if node.op_type == "Expand" and _sizes(scope, source) == (1,):
        shape = scope.producer(node.input[1])
        is_all = shape is not None and shape.op_type == "Shape" and not attribute(shape, "start", 0)
        return row_count(scope, shape.input[0]) if shape is not None and is_all else sizes[:1]
    return sizes[:1]


def _sizes(scope: Scope, name: str) -> Sizes:
    """Returns the sizes of a tensor, by names where these are not known."""
    shape = scope.shape(name) or ()
    declared = next((value.type.tensor_type.shape.dim for value in scope.graph.input if value.name == name), ())
    labels = [dim.dim_param for dim in declared] or [""] * len(shape)
    sizes = enumerate(zip(shape, labels, strict=False))
    return tuple((label or (name, axis)) if size is None else size for axis, (size, label) in sizes)


def magnitude(scope: Scope, name: str) -> float:
    """Returns what no element of a tensor of floats exceeds; infinity where that is not known."""
    values, node = scope.values(name), scope.producer(name)
    if values is not None:
        return capped(float(max(values.max(initial=0), -values.min(initial=0))))
    if node is not None and node.op_type in _PARTS:
        return magnitude(scope, node.input[0])
    if node is not None and node.op_type == "Mul":
        return capped(magnitude(scope, node.input[0]) * magnitude(scope, node.input[1]))
    return np.inf


def capped(most: float) -> float:
    """Returns a magnitude; infinity for NaN, and for what is none in half precision, which a build may ask for."""
    return most if most <= _HIGHEST else np.inf
