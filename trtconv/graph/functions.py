"""Model-local functions: which are called, which hold an operator, and what tensors they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from trtconv.core.errors import InputError
from trtconv.core.findings import Location
from trtconv.graph.types import KNOWN_DOMAINS
from trtconv.graph.walk import all_nodes, inner_graphs, operators, tensors


class UnsupportedFunctions(InputError):
    """Model-local functions cannot be inlined."""

    usual_hint = "Export the model again without functions, or with those of one opset."


def functions_with(functions: Iterable[onnx.FunctionProto], ops: Sequence[str]) -> list[onnx.FunctionProto]:
    """Returns the functions that hold one of the operators, directly or through functions that they call."""
    return _holders(list(functions), [(domain, op) for domain in KNOWN_DOMAINS for op in ops])


def functions_passing_on(functions: Iterable[onnx.FunctionProto]) -> list[onnx.FunctionProto]:
    """Returns the functions that call another with an attribute of their own, and those that call these."""
    functions = list(functions)
    keys = {(f.domain, f.name) for f in functions}
    first = [
        (function.domain, function.name)
        for function in functions
        if any(
            (node.domain, node.op_type) in keys and any(attribute.ref_attr_name for attribute in node.attribute)
            for node in all_nodes(function.node)
        )
    ]
    own = [function for function in functions if (function.domain, function.name) in first]
    return [*own, *(function for function in _holders(functions, first) if function not in own)]


def _holders(functions: Sequence[onnx.FunctionProto], operands: Sequence[tuple[str, str]]) -> list[onnx.FunctionProto]:
    users: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for function in functions:
        for used in operators(function.node):
            users.setdefault(used, []).append((function.domain, function.name))
    keys = _reached(operands, users)
    return [f for f in functions if (f.domain, f.name) in keys]


def called_functions(proto: onnx.ModelProto) -> set[tuple[str, str]]:
    """Returns the functions that are called from the graph, directly or through other functions."""
    calls = {(f.domain, f.name): operators(f.node) for f in proto.functions}
    called = operators(proto.graph.node)
    return (called | _reached(called, calls)) & calls.keys()


def _reached(
    first: Iterable[tuple[str, str]], steps: Mapping[tuple[str, str], Iterable[tuple[str, str]]]
) -> set[tuple[str, str]]:
    """Returns what one or more steps lead to."""
    keys: set[tuple[str, str]] = set()
    queue = list(first)
    for key in queue:
        fresh = set(steps.get(key, ())) - keys
        keys |= fresh
        queue += fresh
    return keys


def inlined_nodes(proto: onnx.ModelProto) -> tuple[int, Location]:
    """Counts the nodes that a model has once its functions are inlined; they must not call themselves.

    Returns:
        Their number, and the place of the call that most of them come from.
    """
    if not proto.functions:
        return len(proto.graph.node), Location()
    bodies = {(f.domain, f.name): f.node for f in proto.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(cost(node) for node in nodes)

    def cost(node: onnx.NodeProto) -> int:
        inner = sum(count(g.node) for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs))
        key = (node.domain, node.op_type)
        if key in bodies and key not in counts:
            counts[key] = count(bodies[key])
        return 1 + inner + counts.get(key, 0)

    costs = [cost(node) for node in proto.graph.node]
    most = max(range(len(costs)), key=costs.__getitem__, default=None)
    if most is None:
        return 0, Location()
    node = proto.graph.node[most]
    return sum(costs), Location(index=most, node=node.name, op=node.op_type)


def function_tensors(function: onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Yields the tensors that a function holds, those of the graphs inside its nodes too."""
    for node in all_nodes(function.node):
        yield from tensors(node.attribute)
    for body in inner_graphs(function.node):
        yield from body.initializer
        for sparse in body.sparse_initializer:
            yield from (sparse.values, sparse.indices)
