"""What the user's Python asks of symbolic sizes while torch.export runs it, answers that torch knew already among it.

torch notes a question as a guard only where nothing before it has the answer, and then by the line that asked first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.sym_node import SymNode

from trtconv.core.documents.export import Blame
from trtconv.core.frozen import frozen
from trtconv.exporter.module.source_line import blame_frame, is_users
from trtconv.exporter.patches import patch, replaced, size_reads

_ASKING = ("guard_bool", "guard_int", "guard_float")
_HEDGING = ("guard_size_oblivious", "guard_or_false", "guard_or_true", "statically_known_true")


@frozen
class Question:
    """One question of the user's.

    Args:
        expression: What was asked for, in sympy.
        answer: What it was.
        line: Where.
    """

    expression: Any
    answer: bool | int | float
    line: Blame


@dataclasses.dataclass
class Questions:
    """What the user's Python asked.

    Args:
        foreign: Files whose lines are not taken for who asks.
        entries: In order.
        open: Whether it read a size otherwise too: as text, as a key, or as far as torch knows it.
        reads_export: Whether it read that it is exported, and may go another way otherwise.
    """

    foreign: frozenset[str]
    entries: list[Question] = dataclasses.field(default_factory=list)
    open: bool = False
    reads_export: bool = False

    def read(self) -> None:
        """Notes that what calls the caller read something that is no question of sizes."""
        self.open = self.open or _line(self.foreign) is not None


_watching: list[Questions] = []


@patch("size_questions")
@contextlib.contextmanager
def size_questions() -> Iterator[Questions]:
    """While active, notes what the user's Python asks of sizes."""
    foreign = symbolic_shapes.uninteresting_files() | {__file__, size_reads.__file__}
    questions = Questions(frozenset(foreign))
    _watching.append(questions)
    with contextlib.ExitStack() as stack:
        # A guard's line is the innermost one that torch does not take for its own.
        stack.enter_context(replaced(symbolic_shapes, "uninteresting_files", lambda: foreign))
        for name in _ASKING:
            stack.enter_context(_watched(SymNode, name, functools.partial(_asking, questions)))
        reads = [(SymNode, name) for name in _HEDGING] + [(symbolic_shapes, "_static_eval_sym_bool")]
        reads += [(kind, name) for kind in (torch.SymInt, torch.SymFloat) for name in size_reads.TEXTS]
        for owner, name in reads:
            stack.enter_context(_watched(owner, name, functools.partial(_reading, questions)))
        for flag in (_is_compiling, _is_exporting):
            own = getattr(torch.compiler, flag.__name__.lstrip("_"), None)
            stack.enter_context(_with_code(own, flag.__code__))
        try:
            yield questions
        finally:
            _watching.remove(questions)


def read_of_export(flag: str) -> bool:
    """Returns a flag of torch.compiler's, and notes whether the user's Python reads it."""
    # Loaded only here: it takes a second, which torch.export takes anyway.
    from torch._dynamo import external_utils

    # torch asks it itself while it answers the user; these two only hand the user's question on.
    passing = frozenset((__file__, external_utils.__file__))
    for questions in _watching:
        questions.reads_export = questions.reads_export or _line(passing) is not None
    return bool(getattr(torch.compiler, flag, False))


def _line(foreign: Collection[str]) -> Blame | None:
    """Returns the line of the user's that called what calls the caller, None where that is none."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename in foreign:
        frame = frame.f_back
    return blame_frame(frame) if is_users(frame.f_code.co_filename) else None


def _is_compiling() -> bool:
    # Runs as torch's own function, which has none of our names.
    from trtconv.exporter.patches.size_questions import read_of_export

    return read_of_export("_is_compiling_flag")


def _is_exporting() -> bool:
    from trtconv.exporter.patches.size_questions import read_of_export

    return read_of_export("_is_exporting_flag")


@contextlib.contextmanager
def _with_code(function: Any, code: types.CodeType) -> Iterator[None]:
    """Replaces what a function runs, not the function: users' modules import it, and have it by a name of theirs."""
    own = getattr(function, "__code__", None)
    if own is not None:
        function.__code__ = code
    try:
        yield
    finally:
        if own is not None:
            function.__code__ = own


def _watched(
    owner: Any, name: str, watch: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> contextlib.AbstractContextManager[Any]:
    own = getattr(owner, name, None)
    return contextlib.nullcontext() if own is None else replaced(owner, name, watch(own))


def _asking(questions: Questions, own: Callable[..., Any]) -> Callable[..., Any]:
    def ask(node: Any, *arguments: Any) -> Any:
        line = _line(questions.foreign)
        expression = node.expr if line is not None else None
        answer = own(node, *arguments)
        if line is not None:
            questions.entries.append(Question(expression, answer, line))
        return answer

    return ask


def _reading(questions: Questions, own: Callable[..., Any]) -> Callable[..., Any]:
    def read(*arguments: Any) -> Any:
        questions.read()
        return own(*arguments)

    return read
