"""A report that grows while a process of its own makes it, and of which what is done is not lost with the process."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from trtconv.core.decode import decoded
from trtconv.core.encode import plain
from trtconv.core.frozen import frozen
from trtconv.core.progress import NullProgress, Progress

R = TypeVar("R")


@frozen
class Event:
    """What a process tells: that it is at the stage `name`, or a part of its report as `value`."""

    event: str
    name: str = ""
    value: Any = None


def part(report: Any) -> dict[str, object]:
    """Returns what to tell of a part of a report: one with the same class, whose other fields are empty."""
    fields = dataclasses.fields(report)
    return {"event": "part", "value": {field.name: plain(getattr(report, field.name)) for field in fields}}


class Hearing(Generic[R]):
    """Hears what the process tells: joins the parts of its report, and passes stages on to the progress.

    Args:
        kind: The report's class.
        progress: Told of stages.
        look: Called with the report so far whenever a part has come.
    """

    def __init__(self, kind: type[R], progress: Progress | None, look: Callable[[R], None] = lambda _: None) -> None:
        self.doing = "start"
        self.report: R | None = None
        self._kind = kind
        self._progress = progress or NullProgress()
        self._look = look
        self._stage = contextlib.ExitStack()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Takes what the process tells: a stage, or a part of the report."""
        message = decoded(Event, event)
        if message.event == "stage":
            self.doing = message.name
            self._stage.close()
            self._stage.enter_context(self._progress.stage(self.doing))
        else:
            heard = decoded(self._kind, message.value)
            self.report = heard if self.report is None else _joined(self.report, heard)
            self._look(self.report)

    def __enter__(self) -> Hearing[R]:
        return self

    def __exit__(self, *_: object) -> None:
        self._stage.close()


def _joined(first: Any, second: Any) -> Any:
    """Returns both parts as one: lists one after the other, and of all else what came first."""
    joined = {}
    for field in dataclasses.fields(first):
        before, after = getattr(first, field.name), getattr(second, field.name)
        both = isinstance(before, tuple) and isinstance(after, tuple)
        joined[field.name] = before + after if both else before or after
    return dataclasses.replace(first, **joined)
