"""What torch.export took for granted of the sizes while it traced, and the lines of Python that made it do so."""

from __future__ import annotations

import linecache
import math
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter

from trtconv.core.documents.export import Blame
from trtconv.core.frozen import frozen
from trtconv.exporter.module.source_line import is_users, short_path
from trtconv.exporter.sizing.vectors import truth_of

_CONTRADICTION = -1
"""Stands among the violated guards where the sizes cannot be told apart by the program's symbols."""


_SEVERAL = 2
"""The smallest size that is like any larger one."""
_PRINTED = types.SimpleNamespace(sym_float=float)
"""What torch prints of its own into a guard."""


@frozen
class Guard:
    """One relation between sizes that the traced code relies on.

    Args:
        text: In Python, over the program's symbols.
        holds: Whether it is so, from the symbols' values.
        blame: The line of the user's that asks for it.
        names: Its symbols.
    """

    text: str
    holds: Callable[[Mapping[str, int]], bool]
    blame: Blame | None
    names: frozenset[str] = frozenset()

    @property
    def decides(self) -> bool:
        """Whether it may lead to other code: which kernel is faster is asked of sizes too, by no line of the user's."""
        return self.blame is not None or "==" in self.text or "!=" in self.text

    @property
    def fixes(self) -> bool:
        """Whether it holds for one size alone."""
        return re.fullmatch(r"\W*\w+\W*==\W*\d+\W*", self.text) is not None

    def truth(self, values: Mapping[str, Any]) -> Any:
        """Whether it is so, for each entry of arrays of the symbols' values, which are broadcast."""
        return truth_of(self.text, self.holds, values)


class Guards:
    """The guards of a program.

    Args:
        inputs: Every input's sizes as the program has them: integers and expressions of symbols.
        guards: What it relies on.
    """

    def __init__(self, inputs: Sequence[Sequence[Any]], guards: Sequence[Guard]) -> None:
        self._inputs = inputs
        self.guards = guards

    def violated(self, shapes: Sequence[Sequence[int]]) -> frozenset[int]:
        """Returns the guards that do not hold for the inputs' shapes, by their index; empty: the traced code's own."""
        values = self._values(shapes)
        if values is None:
            return frozenset((_CONTRADICTION,))
        return frozenset(number for number, guard in enumerate(self.guards) if not guard.holds(values))

    def blame(self, violated: frozenset[int]) -> Blame | None:
        """Returns the line behind the first of some guards that has one."""
        return next((b for n in sorted(violated) if n >= 0 and (b := self.guards[n].blame) is not None), None)

    def fixing(self, size: int) -> Blame | None:
        """Returns the line that makes a constant of some size."""
        equations = [g for g in self.guards if re.fullmatch(rf"\W*\w+\W*==\W*{size}\W*", g.text)]
        return next((g.blame for g in equations if g.blame is not None), None)

    def _values(self, shapes: Sequence[Sequence[int]]) -> dict[str, int] | None:
        """Returns the symbols' values; None where a size is not one that the program's expressions can have."""
        values: dict[str, int] = {}
        for own, numbers in zip(self._inputs, shapes, strict=True):
            for size, n in zip(own, numbers, strict=True):
                symbol, value = _solved(size, n)
                if value is None or values.setdefault(symbol, value) != value:
                    return None
        return values


def constant(size: Any) -> int | None:
    """Returns a program's size as an integer, None where it is no constant."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_Integer else None


def _solved(size: Any, n: int) -> tuple[str, int | None]:
    """Returns a symbol and its value where an expression of it is n."""
    fixed = constant(size)
    if fixed is not None:
        return "", 0 if fixed == n else None
    expression = size.node.expr
    if expression.is_Symbol:
        return str(expression), n
    (symbol,) = expression.free_symbols
    solutions = [int(s) for s in sympy.solve(expression - n, symbol) if s.is_Integer]
    return str(symbol), solutions[0] if solutions else None


def guards_of(program: torch.export.ExportedProgram) -> Guards:
    """Reads the guards of a program that was just exported; they are in no file."""
    placed = placeholders(program)
    inputs = [tuple(value.shape) for value in placed]
    environment = next((v.fake_mode.shape_env for v in placed if v.fake_mode.shape_env is not None), None)
    own = environment_guards(environment) if environment is not None else ()
    guards: dict[str, Guard] = {guard.text: guard for guard in own}
    for expression, traced in _computed_sizes(program).items():
        text = _python(expression)
        if text is not None:
            question = f"min({text}, {_SEVERAL}) == {traced}"
            guards[question] = Guard(question, _compiled(question), None)
    return Guards(inputs, tuple(guards.values()))


def environment_guards(environment: Any, symbols: Collection[str] | None = None) -> tuple[Guard, ...]:
    """Returns what was asked of the sizes, each question once.

    Args:
        environment: The ShapeEnv that noted it.
        symbols: The only symbols that may be in it; default: any.
    """
    noted = (guard_of(guard.expr, _line(guard.sloc)) for guard in environment.guards)
    return unique(g for g in noted if g is not None and (symbols is None or g.names <= set(symbols)))


def unique(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """Returns the first guard of each text, in order."""
    by_text: dict[str, Guard] = {}
    for guard in guards:
        by_text.setdefault(guard.text, guard)
    return tuple(by_text.values())


def guard_of(expression: Any, line: Blame | None, answer: bool | int | float = True) -> Guard | None:
    """Returns the guard of an expression that has some value, None where torch cannot write it in Python."""
    if not isinstance(answer, bool):
        expression = sympy.Eq(expression, answer)
    elif not answer:
        expression = sympy.Not(expression)
    text = _python(expression)
    names = frozenset(map(str, expression.free_symbols))
    return None if text is None else Guard(text, _compiled(text), line, names)


def placeholders(program: torch.export.ExportedProgram) -> list[Any]:
    """Returns the inputs that a program was traced with."""
    return [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and _is_input(program, node)]


def _computed_sizes(program: torch.export.ExportedProgram) -> dict[Any, int]:
    """Returns the sizes of tensors that a program computes of its inputs' sizes, and what they are in the trace.

    They are expressions; all above one are alike. A size of 1 broadcasts and one of 0 has no elements, and torch does
    not say that it took a size for neither.
    """
    values = (node.meta.get("val") for node in program.graph.nodes)
    tensors = (element for value in values for element in (value if isinstance(value, tuple | list) else (value,)))
    sizes = (size for tensor in tensors if isinstance(tensor, torch.Tensor) for size in tensor.shape)
    computed = {s.node.expr: s.node.hint for s in sizes if constant(s) is None and not s.node.expr.is_Symbol}
    return {expression: _SEVERAL if hint is None else min(int(hint), _SEVERAL) for expression, hint in computed.items()}


def _is_input(program: torch.export.ExportedProgram, node: Any) -> bool:
    return node.name in program.graph_signature.user_inputs and hasattr(node.meta.get("val"), "fake_mode")


def _python(expression: Any) -> str | None:
    try:
        text: str = PythonPrinter().doprint(expression)
        compile(text, "guard", "eval")
    except Exception:  # a printer without that function
        return None
    return text


def _compiled(text: str) -> Callable[[Mapping[str, int]], bool]:
    code = compile(text, "guard", "eval")
    scope = {"__builtins__": {}, "math": math, "max": max, "min": min, "abs": abs, "int": int, "torch": _PRINTED}

    def holds(values: Mapping[str, int]) -> bool:
        try:
            # The text is torch's own printing of a sympy expression: no word of a file's.
            return bool(eval(code, scope, dict(values)))
        except NameError:  # a symbol that is of no input's size
            return True
        except Exception:
            return False

    return holds


def _line(location: Any) -> Blame | None:
    frame = location.framework_loc
    if frame is None or isinstance(frame, str) or not is_users(frame.filename):
        return None
    code = linecache.getline(frame.filename, frame.lineno).strip()
    return Blame(short_path(frame.filename), frame.lineno, code)
