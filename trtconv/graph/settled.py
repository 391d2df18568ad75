"""What is settled before a run: tensors that follow from constants and sizes."""

from __future__ import annotations

from collections.abc import Set

from trtconv.graph.folding import FOLDED, OF_SHAPES
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS

_MOST_NODES = 1 << 8
"""That are looked at where nobody says how many."""


def is_settled(scope: Scope, name: str, ops: Set[str] = FOLDED, most: int = _MOST_NODES) -> bool:
    """Whether nothing but constants and sizes goes into a tensor, of this graph or of one around it.

    Args:
        scope: The graph.
        name: The tensor.
        ops: Operators that it may go through; those that read sizes may always.
        most: Nodes that are looked at; what has more behind it is taken for one of run time, as it nearly always is.
    """
    names, nodes = [(scope, name)], set[tuple[str, int]]()
    while names and len(nodes) < most:
        scope, name = names.pop()
        if not name or scope.constant(name) is not None:
            continue
        index = scope.producers.get(name)
        if index is None:
            if scope.parent is None or name in scope.input_names:
                return False
            names.append((scope.parent, name))
            continue
        columns = scope.columns
        op = columns.ops[index]
        if columns.domains[index] not in ONNX_DOMAINS or (op not in OF_SHAPES and op not in ops):
            return False
        if (scope.path, index) not in nodes and op not in OF_SHAPES:
            names += [(scope, source) for source in columns.inputs[index]]
        nodes.add((scope.path, index))
    return not names


def first_computed(scope: Scope, index: int) -> str:
    """Returns which of the weight and the bias of a convolution is no initializer; "" for neither."""
    parameters = scope.columns.inputs[index][1:3]
    return next((name for name in parameters if name and scope.initializer(name) is None), "")
