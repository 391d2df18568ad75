"""How much ONNX's inference writes down where it follows values: every element of a vector that is computed on."""

from __future__ import annotations

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
_MAKERS = _FOLLOWED | _ANY_LENGTH | {"Constant"}
"""Operators that make vectors; most nodes of a network are none of them."""
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
        if op not in _MAKERS:
            continue
        constant = constant_of(node)
        if constant is not None:
            made = _size(constant.dims)
            shapes.update(node.output if made > 1 else ())
        elif op in _ANY_LENGTH and shapes.isdisjoint(node.input[-1:]):
            made = math.inf if known is None else max((known.get(name, _NO_VECTOR) for name in node.output), default=0)
        else:
            made = _made(op, [lengths.get(name, _NO_VECTOR) for name in node.input])
        lengths.update(dict.fromkeys(node.output, made))
        written += made if op in _FOLLOWED else 0
    return written


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
