"""Hints as they are said of a model that trtconv.toml lists: its keys in the place of flags."""

from __future__ import annotations

import re
import shlex

from trtconv.core.text import toml_string

_BOUND = r"--dim (?:'(?:[^']|'\\'')*'|[^\s,;()'=])+=[\w:]+"
_BOUNDS = re.compile(rf"{_BOUND}(?: {_BOUND})*")


def in_configuration(text: str) -> str:
    """Returns a hint with keys of trtconv.toml: `dims = { "batch" = "1:1:8" }` for `--dim batch=1:1:8`."""
    return _BOUNDS.sub(_table, text)


def _table(match: re.Match[str]) -> str:
    pairs = [word.rpartition("=") for word in shlex.split(match[0]) if word != "--dim"]
    return f"dims = {{ {', '.join(f'{toml_string(name)} = {toml_string(bound)}' for name, _, bound in pairs)} }}"
