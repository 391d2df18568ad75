"""Lists of offsets, as exporters put them together: what they are copies of, the end of, or the length of."""

from __future__ import annotations

import numpy as np
import onnx

from trtconv.graph.scope import Scope

COPIES = ("Identity", "Cast", "CastLike", "Reshape", "Unsqueeze", "Squeeze")
"""Of single numbers, and of lists of them."""
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
    while node is not None and node.op_type in COPIES:
        node = scope.producer(node.input[0])
    return node
