"""How long each stage took, told to the progress as it happens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trtconv.core.progress import NullProgress, Progress
from trtconv.core.stages import Stage

if TYPE_CHECKING:
    from trtconv.core.process import Tell


class Stopwatch:
    """Times the stages and tells the progress of them."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress or NullProgress()
        self.seconds: dict[str, float] = {}
        """Of each stage so far, by its name; more digits would tell how the clock is built."""
        self._attempt = ""

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Tells the progress of which attempt the stages inside are; their times are added up by stage."""
        self._attempt = f" ({name})"
        try:
            yield
        finally:
            self._attempt = ""

    @contextlib.contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        """Times a stage, and tells the progress of it."""
        started = time.perf_counter()
        try:
            with self.progress.stage(stage.value + self._attempt):
                yield
        finally:
            self.seconds[stage.value] = round(self.spent(stage) + time.perf_counter() - started, 4)

    def require(self, stage: Stage, seconds: float) -> None:
        """Has a stage count as at least so many seconds, where another process was at it before."""
        self.seconds[stage.value] = max(self.spent(stage), round(seconds, 4))

    def spent(self, stage: Stage) -> float:
        """Returns the seconds that a stage has taken so far."""
        return self.seconds.get(stage.value, 0.0)


class ToldProgress(NullProgress):
    """Tells of stages across the border of a process, as events {"event": "stage", "name"}."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def stage(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Tells of a stage as it begins."""
        self._tell({"event": "stage", "name": name})
        return super().stage(name)
