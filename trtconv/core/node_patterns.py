"""Nodes named by patterns: a name or `type:` and an operator, with * and ? for any letters."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable

_OPERATOR = "type:"
_WILD = re.compile(r"[*?]")


def matches(pattern: str, name: str, op: str) -> bool:
    """Whether a pattern means a node of a name and an operator."""
    if pattern == name:
        return True
    if pattern.startswith(_OPERATOR):
        return bool(_compiled(pattern.removeprefix(_OPERATOR)).fullmatch(op))
    return bool(_compiled(pattern).fullmatch(name))


def is_pattern(text: str) -> bool:
    """Whether a text may mean several nodes."""
    return text.startswith(_OPERATOR) or bool(_WILD.search(text))


def nearest(patterns: Iterable[str], name: str, op: str) -> str | None:
    """Returns the pattern that a node is nearest to, of those that mean it; None where none does.

    A name comes before a pattern, a pattern of names before one of operators, one with more letters before one with
    fewer, and what is * alone comes last; of two that are alike the later one counts.
    """
    candidates = [pattern for pattern in patterns if matches(pattern, name, op)]
    return max(reversed(candidates), key=lambda pattern: _rank(pattern, name), default=None)


def _rank(pattern: str, name: str) -> tuple[int, int]:
    if pattern == name:
        return 3, 0
    is_operator = pattern.startswith(_OPERATOR)
    letters = len(_WILD.sub("", pattern.removeprefix(_OPERATOR) if is_operator else pattern))
    return (0 if not letters else 1 if is_operator else 2), letters


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # Brackets are in the names of many nodes, and mean themselves. What is translated never tries a star twice.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
