"""Model-local functions: which are called, and which hold an operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from trtconv.graph.types import KNOWN_DOMAINS
from trtconv.graph.walk import operators


class UnsupportedFunctions(Exception):
    """Model-local functions cannot be inlined."""


def functions_with(functions: Iterable[onnx.FunctionProto], ops: Sequence[str]) -> list[onnx.FunctionProto]:
    """Returns the functions that hold one of the operators, directly or through functions that they call."""
    functions = list(functions)
    users: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for function in functions:
        for used in operators(function.node):
            users.setdefault(used, []).append((function.domain, function.name))
    found = _reached([(domain, op) for domain in KNOWN_DOMAINS for op in ops], users)
    return [f for f in functions if (f.domain, f.name) in found]


def called_functions(proto: onnx.ModelProto) -> set[tuple[str, str]]:
    """Returns the functions that are called from the graph, directly or through other functions."""
    calls = {(f.domain, f.name): operators(f.node) for f in proto.functions}
    called = operators(proto.graph.node)
    return (called | _reached(called, calls)) & calls.keys()


def _reached(
    first: Iterable[tuple[str, str]], steps: Mapping[tuple[str, str], Iterable[tuple[str, str]]]
) -> set[tuple[str, str]]:
    """Returns what one or more steps lead to."""
    found: set[tuple[str, str]] = set()
    queue = list(first)
    for key in queue:
        fresh = set(steps.get(key, ())) - found
        found |= fresh
        queue += fresh
    return found
