"""Has what trtconv does in processes of its own done in this one: thousands of trusted models run without a start."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from trtconv.core import process, serving


def _start(self: Any, task: str, megabytes: float | None = None, *, quiet: bool = True) -> None:
    """Stands for the start of a process: what runs models here is trusted."""
    self.task, self.function = task, None


def _call(self: Any, argument: Any, seconds: Any = None, tell: Any = None, watch: Any = None) -> Any:
    """Stands for a call in another process."""
    self.function = self.function or serving.function_of(self.task)
    return self.function(argument, tell or (lambda event: None))


def in_process() -> AbstractContextManager[Any]:
    """Returns the context in which no process is started."""
    return mock.patch.multiple(process.Process, __init__=_start, call=_call, close=lambda self: None)
