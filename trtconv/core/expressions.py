"""Dimension names that are expressions, such as the `8*h` and `2*h + 1` that torch.export writes.

A name is an expression only where it can hardly be a plain name: it has an operator that names do not contain
(`*`, `+`, `/`, parentheses), or it subtracts and all its symbols are names of other dimensions.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from trtconv.core.frozen import frozen


def _fold(method: str, b_wins: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Any]:
    """Returns the larger, or smaller, of integers, vectors, and numbers that have a method for it."""

    def choose(a: Any, b: Any) -> Any:
        for one, other in ((a, b), (b, a)):
            if hasattr(one, method):
                return getattr(one, method)(other)
        return a + (b - a) * b_wins(a, b)

    return functools.partial(functools.reduce, choose)


_LARGEST, _SMALLEST = _fold("maximum", operator.lt), _fold("minimum", operator.gt)
_CALLS = {"Max": _LARGEST, "Min": _SMALLEST, "max": _LARGEST, "min": _SMALLEST}
_FAR = 2**48
_TELLING = frozenset("*+/()")


@frozen
class Expression:
    """A dimension computed from others.

    Args:
        text: As the model spells it.
        tree: The parsed text.
        symbols: Names of the dimensions in it, in order.
    """

    text: str
    tree: ast.expr
    symbols: tuple[str, ...]

    def evaluate(self, sizes: Mapping[str, Any]) -> Any:
        """Returns the value; `sizes` may hold anything that has arithmetic."""
        return _evaluate(self.tree, sizes)

    @property
    def linear(self) -> bool:
        """Whether it is a*symbol + b, so that its size tells that of the symbol."""
        if len(self.symbols) != 1 or not all(_polynomial(node) for node in ast.walk(self.tree)):
            return False
        offset, slope = self._line()
        return slope != 0 and all(self.evaluate({self.symbols[0]: n}) == slope * n + offset for n in (2, 3, 7, 100))

    def solve(self, value: int) -> int | None:
        """Returns the size of the one symbol that gives a value, where the expression is `linear`; else None."""
        if not self.linear:
            return None
        offset, slope = self._line()
        size, rest = divmod(value - offset, slope)
        return size if rest == 0 else None

    def _line(self) -> tuple[int, int]:
        offset, one = (int(self.evaluate({self.symbols[0]: n})) for n in (0, 1))
        return offset, one - offset


def _polynomial(node: ast.AST) -> bool:
    return not isinstance(node, ast.Call | ast.FloorDiv | ast.Div | ast.Mod)


def parse(name: str, others: Collection[str] = ()) -> Expression | None:
    """Reads a dimension name as an expression.

    Args:
        others: Names of other dimensions.

    Returns:
        The expression, or None where it is a plain name.
    """
    if not (_TELLING & set(name) or "-" in name) or len(name) > 200:
        return None
    try:
        tree = ast.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    symbols = tuple(dict.fromkeys(name for name in names if name not in (*_CALLS, "floor")))
    if not symbols or not _understood(tree) or isinstance(tree, ast.Name):
        return None
    if not _TELLING & set(name) and not set(symbols) <= set(others):
        return None
    # Constants beyond all sizes would not fit into 64 bits either.
    if abs(_evaluate(tree, dict.fromkeys(symbols, 1))) > _FAR:
        return None
    return Expression(name, tree, symbols)


def _understood(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        if not (_understood(node.left) and _understood(node.right)):
            return False
        # What divides by a size has no value where that is 0; no exporter writes it.
        divides = isinstance(node.op, ast.FloorDiv | ast.Div | ast.Mod)
        return _positive(node.right) if divides else isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.keywords or not all(_understood(a) for a in node.args):
            return False
        return len(node.args) == 1 if node.func.id == "floor" else node.func.id in _CALLS and bool(node.args)
    if isinstance(node, ast.Constant):
        return type(node.value) is int and abs(node.value) < 2**31
    return isinstance(node, ast.Name) and node.id not in (*_CALLS, "floor")


def _positive(node: ast.expr) -> bool:
    return not any(isinstance(part, ast.Name) for part in ast.walk(node)) and _evaluate(node, {}) > 0


def _evaluate(node: ast.expr, sizes: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        values = [_evaluate(argument, sizes) for argument in node.args]
        return values[0] if node.func.id == "floor" else _CALLS[node.func.id](values)
    assert isinstance(node, ast.BinOp)
    a, b = _evaluate(node.left, sizes), _evaluate(node.right, sizes)
    if isinstance(node.op, ast.Add):
        return a + b
    if isinstance(node.op, ast.Sub):
        return a - b
    if isinstance(node.op, ast.Mult):
        return a * b
    # Sizes are whole: "h/2" as well as "h//2" and "floor(h/2)" round down.
    return a % b if isinstance(node.op, ast.Mod) else a // b


def derived(names: Collection[str]) -> dict[str, Expression]:
    """Returns those of the dimension names that are computed from others."""
    expressions = {name: parse(name, names) for name in names}
    return {name: expression for name, expression in expressions.items() if expression is not None}


def free_names(names: Collection[str]) -> list[str]:
    """Returns the dimensions that can be chosen: the plain names, and the symbols of the expressions."""
    expressions = derived(names)
    order = [s for name in names for s in (expressions[name].symbols if name in expressions else (name,))]
    plain = [name for name in names if name not in expressions]
    return list(dict.fromkeys([*plain, *order]))
