"""Sizes that Python takes as text, or as a key of a dictionary, while a module runs with symbols for them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes

from trtconv.exporter.module.source_line import is_users
from trtconv.exporter.patches import patch, replaced

TEXTS = ("__hash__", "__repr__", "__str__", "__format__")
"""What Python calls to take a number as text or as a key."""


@patch("size_reads")
@contextlib.contextmanager
def size_reads_asked() -> Iterator[None]:
    """While active, a symbolic size that the user's code hashes or writes as text is asked for its value.

    torch refuses the first and writes the symbol's name for the second, so that nothing tells of what Python does with
    them. Asked, it is a guard of the user's line: other sizes are other ways.
    """
    foreign = symbolic_shapes.uninteresting_files() | {__file__}
    with contextlib.ExitStack() as stack:
        # A guard's line is the innermost one that torch does not take for its own.
        stack.enter_context(replaced(symbolic_shapes, "uninteresting_files", lambda: foreign))
        for kind in (torch.SymInt, torch.SymFloat):
            for name in TEXTS:
                stack.enter_context(replaced(kind, name, _asking(kind, name)))
        yield


def _asking(kind: Any, name: str) -> Callable[..., Any]:
    torchs = getattr(kind, name)
    plain = getattr(int if kind is torch.SymInt else float, name)

    def ask(self: Any, *arguments: Any) -> Any:
        if not is_users(sys._getframe(1).f_code.co_filename):
            return torchs(self, *arguments)
        return plain(self.__int__() if kind is torch.SymInt else self.__float__(), *arguments)

    return ask
