"""Model-local functions: which are called, and which hold an operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from trtconv.graph.types import KNOWN_DOMAINS


class UnsupportedFunctions(Exception):
    """Model-local functions cannot be inlined."""


def functions_with(functions: Iterable[onnx.FunctionProto], ops: Sequence[str]) -> list[onnx.FunctionProto]:
    """Returns the functions that hold one of the operators, directly or through functions that they call."""
    functions = list(functions)
    wanted = {(domain, op) for domain in KNOWN_DOMAINS for op in ops}
    holders = {(f.domain, f.name) for f in functions if _has_op(f.node, wanted)}
    grown = True
    while grown and holders:
        callers = {(f.domain, f.name) for f in functions if _has_op(f.node, holders)} - holders
        holders |= callers
        grown = bool(callers)
    return [f for f in functions if (f.domain, f.name) in holders]


def called_functions(proto: onnx.ModelProto) -> set[tuple[str, str]]:
    """Returns the functions that are called from the graph, directly or through other functions."""
    bodies = {(f.domain, f.name): f.node for f in proto.functions}
    called: set[tuple[str, str]] = set()
    queue: list[Iterable[onnx.NodeProto]] = [proto.graph.node]
    for nodes in queue:
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in bodies and key not in called:
                called.add(key)
                queue.append(bodies[key])
            queue.extend(g.node for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs))
    return called


def _has_op(nodes: Iterable[onnx.NodeProto], ops: set[tuple[str, str]]) -> bool:
    for node in nodes:
        if (node.domain, node.op_type) in ops:
            return True
        bodies = (g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs))
        if any(_has_op(body.node, ops) for body in bodies):
            return True
    return False
