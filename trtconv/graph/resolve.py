"""Values that a model fixes: of its constants, and of the sizes of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.graph.attributes import attribute
from trtconv.graph.folding import FOLDED, evaluate
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS

_COPIES = ("Cast", "Identity")
_MAX_CONE = 64
"""Nodes that are looked at, at most, for one value."""


def resolved(scope: Scope, name: str, opsets: Iterable[Any]) -> NDArray[Any] | None:
    """Returns the values of a tensor that is computed from constants and known sizes alone.

    Args:
        scope: The graph that it is seen from.
        name: The tensor.
        opsets: The model's.

    Returns:
        Its values; None where something known only at run time goes in.
    """
    values = scope.values(name) if name else None
    if values is not None or not name:
        return values
    cone = _Cone(scope)
    if not cone.visit(name):
        return None
    value = cone.values.get(name)
    return value if value is not None else evaluate(cone.nodes, cone.values, name, opsets)


def values_of_copy(scope: Scope, name: str) -> NDArray[Any] | None:
    """Returns the values of a constant, or of a copy or a cast of one, as exporters write what several nodes share;
    None for anything else.

    Args:
        scope: The graph that it is seen from.
        name: The tensor.
    """
    casts: list[int] = []
    for _ in range(_MAX_CONE):
        maker = scope.producer(name)
        if maker is None or maker.op_type not in _COPIES or maker.domain not in ONNX_DOMAINS:
            break
        casts += [entry.i for entry in maker.attribute if entry.name == "to"]
        name = maker.input[0]
    values = scope.values(name)
    if values is None:
        return None
    for code in reversed(casts):
        with np.errstate(invalid="ignore", over="ignore"):
            values = values.astype(onnx.helper.tensor_dtype_to_np_dtype(code))
    return values


class _Cone:
    """What a tensor is computed from, in order."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._indices: set[int] = set()
        self.nodes: list[onnx.NodeProto] = []
        self.values: dict[str, NDArray[Any]] = {}

    def visit(self, name: str) -> bool:
        """Whether nothing but what is known goes into a tensor."""
        if not name or name in self.values:
            return True
        values = self._scope.values(name)
        if values is not None:
            self.values[name] = values
            return True
        index = self._scope.producers.get(name)
        if index is None or len(self._indices) >= _MAX_CONE:
            return False
        if index in self._indices:
            return True
        columns = self._scope.columns
        op, node = columns.ops[index], columns.nodes[index]
        if columns.domains[index] not in ONNX_DOMAINS:
            return False
        if op in ("Shape", "Size") and columns.inputs[index]:
            sizes = sizes_read(self._scope, node)
            if sizes is None:
                return False
            self.values[name] = sizes
            return True
        if op == "Gather" and self._takes_sizes(node):
            return True
        # Counted on the way down: a chain of thousands would be as many calls inside source other.
        self._indices.add(index)
        if op not in FOLDED or not all(self.visit(source) for source in columns.inputs[index]):
            return False
        self.nodes.append(node)
        return True

    def _takes_sizes(self, node: onnx.NodeProto) -> bool:
        """Whether a Gather takes nothing but known sizes, of a shape that may have others besides."""
        sizes_of, indices = node.input
        index = self._scope.producers.get(sizes_of)
        shape_node = None if index is None else self._scope.columns.nodes[index]
        if shape_node is None or shape_node.op_type != "Shape" or shape_node.domain not in ONNX_DOMAINS:
            return False
        part, places = _part_read(self._scope, shape_node), self._scope.values(indices)
        if part is None or places is None or not all(-len(part) <= place < len(part) for place in places.flat):
            return False
        sizes = [size for size in (part[int(place)] for place in places.flat) if size is not None]
        if len(sizes) != places.size:
            return False
        self.values[node.output[0]] = np.array(sizes, np.int64).reshape(places.shape)
        return True


def _part_read(scope: Scope, node: onnx.NodeProto) -> Sequence[int | None] | None:
    """Returns the sizes that a Shape makes, None for those that are not known; None where the rank is not."""
    shape = scope.shape(node.input[0])
    if shape is None:
        return None
    return shape[attribute(node, "start", 0) : attribute(node, "end", len(shape))]


def sizes_read(scope: Scope, node: onnx.NodeProto) -> NDArray[np.int64] | None:
    """Returns what a Shape or a Size makes, where the sizes are known."""
    part = _part_read(scope, node) if node.op_type == "Shape" else scope.shape(node.input[0])
    if part is None:
        return None
    sizes = [size for size in part if size is not None]
    if len(sizes) != len(part):
        return None
    return np.array(sizes, np.int64) if node.op_type == "Shape" else np.prod(sizes, dtype=np.int64).reshape(())
