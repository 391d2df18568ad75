"""The statement that a line of Python belongs to, its sides, and which of them ran."""

from __future__ import annotations

import ast
import dataclasses
import linecache
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from trtconv.core.documents.export import Branch
from trtconv.exporter.module.source_line import is_ours, is_users


class NextLine:
    """Learns to which line a function goes on from where it is.

    Args:
        frame: The running function.
    """

    def __init__(self, frame: FrameType) -> None:
        self.file, self.line = frame.f_code.co_filename, frame.f_lineno
        self.caught = _caught(frame)
        self.after: int | None = None
        self._frame: FrameType | None = None
        if sys.gettrace() is None and frame.f_trace is None:  # else a debugger's, or a coverage's
            self._frame = frame
            sys.settrace(_no_calls)
            frame.f_trace = self._moved

    def _moved(self, frame: FrameType, event: str, value: Any) -> Any:
        if event == "line":
            self.after = frame.f_lineno
        if event in ("line", "return"):
            self.stop()
            return None
        return self._moved

    def stop(self) -> None:
        """Lets the function run on unwatched."""
        if self._frame is not None:
            self._frame.f_trace = None
            self._frame = None
            if sys.gettrace() is _no_calls:
                sys.settrace(None)


def _no_calls(frame: FrameType, event: str, value: Any) -> None:
    """Watches no function that is called meanwhile."""


def with_sides(branch: Branch, after: NextLine) -> Branch:
    """Adds to a branch the side that ran and the other, as far as the source tells them apart."""
    statement = _statement(after.file, after.line)
    if statement is None:
        return branch
    if isinstance(statement, ast.Assert):
        return dataclasses.replace(branch, check=not after.caught)
    body, other = _sides(statement)
    ran_body = _ran(body, other, after)
    if ran_body is None:
        ran_body = _decided(statement, branch.truth)
    names = [_text(after.file, side) for side in (body, other)]
    if ran_body is None:
        return dataclasses.replace(branch, sides=(names[0], names[1]))
    ran, rest = (body, other) if ran_body else (other, body)
    sides = tuple(names if ran_body else names[::-1])
    check = _raises(rest) and not _raises(ran) and not after.caught
    return dataclasses.replace(branch, sides=sides, known=True, check=check)


def _caught(frame: FrameType | None) -> bool:
    """Whether the user's code goes on where the running line raises."""
    while frame is not None and not is_ours(frame.f_code.co_filename):
        file, line = frame.f_code.co_filename, frame.f_lineno
        if is_users(file) and any(_catches(node) and _holds(node.body, line) for node in _nodes(file)):
            return True
        frame = frame.f_back
    return False


def _catches(node: ast.AST) -> bool:
    if isinstance(node, ast.With):
        return any("suppress" in ast.unparse(item.context_expr) for item in node.items)
    return bool(getattr(node, "handlers", ()))


def _nodes(file: str) -> list[Any]:
    """Returns the parts of a file's source, those inside others after them."""
    try:
        return list(ast.walk(ast.parse("".join(linecache.getlines(file)))))
    except (SyntaxError, ValueError):
        return []


def _statement(file: str, line: int) -> Any:
    """Returns the innermost statement that decides something in that line."""
    deciding = [node for node in _nodes(file) if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert)]
    inside = [node for node in deciding if node.test.lineno <= line <= (node.test.end_lineno or node.test.lineno)]
    return inside[-1] if inside else None


def _sides(statement: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    if isinstance(statement, ast.IfExp):
        return [statement.body], [statement.orelse]
    return statement.body, statement.orelse


def _ran(body: Sequence[Any], other: Sequence[Any], after: NextLine) -> bool | None:
    """Whether the first side ran; None where both stand in the line of the test."""
    first = body[0].lineno
    if after.after is None or isinstance(body[0], ast.expr):
        return None
    if first == after.line:
        # The line of the test, where Python does not say that it went on, or one behind it.
        return False if other and _holds(other, after.after) else None
    return _holds(body, after.after)


def _decided(statement: Any, truth: bool | None) -> bool | None:
    """Whether the first side ran, where the test is nothing but what was read."""
    test, turned = statement.test, False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, turned = test.operand, not turned
    mixed = any(isinstance(part, ast.BoolOp | ast.Is | ast.IsNot | ast.IfExp) for part in ast.walk(test))
    cast = any(isinstance(part, ast.Name) and part.id == "bool" for part in ast.walk(test))
    if truth is None or mixed or cast:
        return None
    return truth != turned


def _holds(side: Sequence[Any], line: int) -> bool:
    return bool(side[0].lineno <= line <= (side[-1].end_lineno or side[-1].lineno))


def _raises(side: Sequence[Any]) -> bool:
    return bool(side) and isinstance(side[0], ast.Raise)


def _text(file: str, side: Sequence[Any]) -> str:
    if not side:
        return ""
    whole = linecache.getline(file, side[0].lineno)
    own = whole[side[0].col_offset :].strip() if not whole[: side[0].col_offset].strip() else ""
    return f"`{own or ast.unparse(side[0]).splitlines()[0]}`"
