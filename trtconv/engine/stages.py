"""Time by stage, told to the caller as it goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from trtconv.core.process import Tell


class Clock:
    """Adds up the time of stages, and tells of them."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Wraps one stage of the work."""
        self._tell({"event": "stage", "name": name})
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
