"""How much ONNX's inference writes down where it follows values: every element of a vector that is computed on."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from trtconv.graph.walk import constant_of

_MOST_WRITTEN = 1 << 20
"""Elements; each takes some 40 bytes."""
_RANK = 8.0
_ANY_LENGTH = frozenset(("Reshape", "Expand", "ConstantOfShape", "Tile", "Range"))
"""Operators that make vectors as long as their last input says."""
_ARITHMETIC = frozenset(("Add", "Sub", "Mul"))
_PASSED_ON = frozenset(("Slice", "Gather", "Squeeze", "Unsqueeze", "Cast", "Identity"))
_FOLLOWED = _ARITHMETIC | _PASSED_ON | {"Shape", "Concat"}
"""Operators whose values inference follows; a Concat of what a Concat made doubles them."""
_WINDOWS = frozenset(("HannWindow", "HammingWindow", "BlackmanWindow"))
_TO_VECTORS = frozenset(("MatMul", "Einsum", "Pad", "Resize", "Upsample", "Compress", "Unique")) | _WINDOWS
"""Operators that may make a vector of something else, or a longer one."""
_REDUCTIONS = ("Reduce", "Arg")
_MAKERS = _FOLLOWED | _ANY_LENGTH | _TO_VECTORS | {"Constant"}
"""Operators that make vectors, beside reductions; most nodes of a network are none of them."""
_NO_VECTOR = 0.0


def data_can_be_propagated(graph: onnx.GraphProto, model: onnx.ModelProto | bytes) -> bool:
    """Whether ONNX's inference may follow the values of a model, whose main graph is given by itself too."""
    written = _written(graph, None)
    if math.isinf(written):
        try:
            found = onnx.shape_inference.infer_shapes(model).graph.value_info
        # Whatever inference raises over a stranger's model means one thing here: not known.
        except Exception:
            return False
        written = _written(graph, {each.name: _length(each) for each in found})
    return written <= _MOST_WRITTEN


def _written(graph: onnx.GraphProto, known: Mapping[str, float] | None) -> float:
    """Returns how many elements are written down; infinity where that depends on lengths that are not known.

    Args:
        graph: The graph.
        known: Tensors to their lengths, as inference without values tells them; None: it was not asked.
    """
    lengths = {tensor.name: _size(tensor.dims) for tensor in graph.initializer}
    lengths |= {value.name: _length(value) for value in graph.input if value.name not in lengths}
    # Several numbers are the shape of something that is no vector.
    shapes = {name for name, length in lengths.items() if length > 1}
    written = 0.0
    for node in graph.node:
        op = node.op_type
        if not _is_maker(op):
            # It makes a vector of a vector only, as long as that or shorter.
            read = node.input
            made = lengths.get(read[0], _NO_VECTOR) if read else _NO_VECTOR
            if made:
                lengths.update(dict.fromkeys(node.output, made))
            continue
        constant = constant_of(node)
        if constant is not None:
            made = _size(constant.dims)
            shapes.update(node.output if made > 1 else ())
        else:
            parts = [lengths.get(name, _NO_VECTOR) for name in node.input]
            made = _made(op, parts)
            if _may_lower_rank(node, parts) or (op in _ANY_LENGTH and shapes.isdisjoint(node.input[-1:])):
                told = (_NO_VECTOR if known is None else known.get(name, _NO_VECTOR) for name in node.output)
                made = math.inf if known is None else max(told, default=_NO_VECTOR)
            # Even where nothing comes of it, inference writes down what an operator reads.
            written += max([made, *parts]) if op in _FOLLOWED else 0
        lengths.update(dict.fromkeys(node.output, made))
    return written


@functools.cache
def _is_maker(op: str) -> bool:
    return op in _MAKERS or op.startswith(_REDUCTIONS)


def _may_lower_rank(node: onnx.NodeProto, parts: Sequence[float]) -> bool:
    """Whether a vector may come of what is none."""
    if node.op_type.startswith(_REDUCTIONS):
        return any(each.name == "keepdims" and each.i != 1 for each in node.attribute)
    return node.op_type in _TO_VECTORS or (node.op_type in ("Gather", "Squeeze") and not any(parts[:1]))


def _made(op: str, parts: Sequence[float]) -> float:
    """Returns how long a vector an operator makes of vectors so long."""
    if op == "Shape":
        return _RANK
    if op == "Concat":
        return sum(parts)
    follows = op in _PASSED_ON or (op in _ARITHMETIC and all(parts))
    return max(parts, default=_NO_VECTOR) if follows else _NO_VECTOR


def _size(dims: Sequence[int]) -> float:
    return float(math.prod(dims)) if len(dims) < 2 else _NO_VECTOR


def _length(value: onnx.ValueInfoProto) -> float:
    dims: Sequence[Any] = value.type.tensor_type.shape.dim
    return float(max(1, dims[0].dim_value)) if len(dims) == 1 else _NO_VECTOR
