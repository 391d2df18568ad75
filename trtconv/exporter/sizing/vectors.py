"""Questions of sizes, as torch prints them in Python, answered for many sizes at once."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ONE_BY_ONE = 50_000
"""Sizes for which a question is asked one by one, where arrays do not answer it."""


def truth_of(text: str, holds: Callable[[Mapping[str, int]], bool], values: Mapping[str, NDArray[Any]]) -> Any:
    """Returns whether a relation holds, for each entry of arrays that are broadcast.

    Args:
        text: The relation, in Python over the names of the arrays.
        holds: Answers it for one integer each.
        values: Name to array.
    """
    names = {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)} & values.keys()
    own = {name: values[name] for name in sorted(names)}
    if not own:
        return holds({})
    try:
        # The text is torch's own printing of a sympy expression: no word of a file's.
        with np.errstate(all="ignore"):
            return np.asarray(eval(_vector_code(text), dict(_SCOPE), dict(own))).astype(bool)
    except Exception:  # a function that is none of arrays
        shape = np.broadcast_shapes(*(array.shape for array in own.values()))
        if np.prod(shape) > _ONE_BY_ONE:
            return np.zeros(shape, dtype=bool)
        flat = zip(*(np.broadcast_to(array, shape).ravel().tolist() for array in own.values()), strict=True)
        return np.array([holds(dict(zip(own, row, strict=True))) for row in flat], dtype=bool).reshape(shape)


@functools.lru_cache(maxsize=1024)
def _vector_code(text: str) -> types.CodeType:
    tree = ast.fix_missing_locations(_Arrays().visit(ast.parse(text, mode="eval")))
    return compile(tree, "guard", "eval")


class _Arrays(ast.NodeTransformer):
    """Writes what Python decides for one value as functions of arrays."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return _call("_and" if isinstance(node.op, ast.And) else "_or", node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call("_not", [node.operand]) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        return _call("_where", [node.test, node.body, node.orelse])

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        sides = [node.left, *node.comparators]
        pairs: list[ast.expr] = [
            ast.Compare(a, [op], [b]) for a, op, b in zip(sides, node.ops, sides[1:], strict=False)
        ]
        return _call("_and", pairs)


def _call(name: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [])


def _whole(rounded: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: np.asarray(rounded(value)).astype(np.int64)


_SCOPE: Mapping[str, Any] = {
    "__builtins__": {},
    "_and": lambda *terms: functools.reduce(np.logical_and, terms),
    "_or": lambda *terms: functools.reduce(np.logical_or, terms),
    "_not": np.logical_not,
    "_where": np.where,
    "max": lambda *terms: functools.reduce(np.maximum, terms),
    "min": lambda *terms: functools.reduce(np.minimum, terms),
    "abs": np.abs,
    "int": _whole(np.trunc),
    "round": _whole(np.round),
    "float": lambda value: np.asarray(value, dtype=np.float64),
    "math": types.SimpleNamespace(
        floor=_whole(np.floor),
        ceil=_whole(np.ceil),
        trunc=_whole(np.trunc),
        sqrt=np.sqrt,
        pow=np.power,
        exp=np.exp,
        log=np.log,
        log2=np.log2,
    ),
    "torch": types.SimpleNamespace(sym_float=lambda value: np.asarray(value, dtype=np.float64)),
}
