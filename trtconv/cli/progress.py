"""Progress on stderr: elapsed time and phase, from a thread of our own because the native build blocks."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Protocol, TextIO

from trtconv.cli.process import status
from trtconv.core.forking import allow_forks
from trtconv.core.progress import NullProgress, Progress
from trtconv.core.text import clean

LINE_SECONDS = 10.0
TERMINAL_SECONDS = 0.2


class ConsoleProgress(Progress, Protocol):
    """Progress that can also say what is done with."""

    def row(self, text: str) -> None:
        """Writes a line that stays."""


class QuietProgress(NullProgress):
    """Says nothing of what is done with either."""

    def row(self, text: str) -> None:
        """Ignores a line."""


@contextlib.contextmanager
def show_progress(quiet: bool, expected: Mapping[str, float] | None = None) -> Iterator[ConsoleProgress]:
    """Shows progress on stderr while the block runs.

    Args:
        quiet: Show nothing.
        expected: Seconds that each stage took the last time, in their order; of others nothing is known.
    """
    stream = sys.stderr
    if quiet or stream is None:
        yield _watched(QuietProgress())
        return
    terminal = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    display = _ShownProgress(stream, terminal, _Forecast(expected or {}))
    try:
        yield _watched(display)
    finally:
        display.close()


def _watched(progress: ConsoleProgress) -> ConsoleProgress:
    """Returns a progress that also tells the process that watches this one, where there is one."""
    return _Announcer(progress) if status.is_watched() else progress


class _Forecast:
    """How much time is left, by what stages took the last time.

    Args:
        expected: Stage to its seconds then.
    """

    def __init__(self, expected: Mapping[str, float]) -> None:
        self._remaining = dict(expected)
        self._stage, self._since = "", time.monotonic()

    def enter(self, stage: str) -> None:
        """Takes note that a stage begins: the one before it is over."""
        self._remaining.pop(self._stage, None)
        self._stage, self._since = stage, time.monotonic()

    def __str__(self) -> str:
        """What is left, in words; nothing where that is under a second, or not known."""
        spent = min(time.monotonic() - self._since, self._remaining.get(self._stage, 0.0))
        seconds = sum(self._remaining.values()) - spent
        return f", about {seconds:.0f} s left" if seconds >= 1 else ""


class _Announcer:
    """Hands everything on, and announces it."""

    def __init__(self, progress: ConsoleProgress) -> None:
        self._progress = progress
        self._phase = ""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announces the stage."""
        status.announce(status.STAGE, name)
        with self._progress.stage(name):
            yield

    def phase(self, name: str, step: int, steps: int) -> None:
        """Announces a new phase; its steps are too many."""
        if name != self._phase:
            self._phase = name
            status.announce(status.PHASE, name)
        self._progress.phase(name, step, steps)

    def row(self, text: str) -> None:
        """Hands a line on."""
        self._progress.row(text)


class _ShownProgress:
    """On a terminal one line that is updated; elsewhere a line a stage, and one every `LINE_SECONDS`."""

    def __init__(self, stream: TextIO, terminal: bool, forecast: _Forecast) -> None:
        self._stream = stream
        self._terminal = terminal
        self._forecast = forecast
        self._start = time.monotonic()
        self._stage = ""
        self._phase = ""
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Shows the stage's name, and starts the ticking with the first stage."""
        before = self._stage
        self._stage, self._phase = name, ""
        self._forecast.enter(name)
        self._show()
        if self._thread is None:
            thread = threading.Thread(target=self._tick, name="trtconv-progress", daemon=True)
            thread.start()
            # Kept only once it runs: Ctrl-C may come inside start(), and a thread that never ran cannot be joined.
            self._thread = thread
        try:
            yield
        finally:
            self._stage, self._phase = before, ""

    def phase(self, name: str, step: int, steps: int) -> None:
        """Remembers the phase; the ticking shows it, so that a fast builder is not slowed down."""
        name = clean(name)
        self._phase = f"{name} ({step}/{steps})" if steps else name

    def row(self, text: str) -> None:
        """Writes a line above the one that is updated."""
        erase = "\r\x1b[K" if self._terminal else ""
        self._write(f"{erase}{clean(text)}\n")

    def close(self) -> None:
        """Stops the ticking and leaves the terminal's line empty."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=1)
        if self._terminal:
            self._write("\r\x1b[K")

    def _tick(self) -> None:
        # A fork has a stderr of its own, and shows no progress.
        with allow_forks():
            while not self._end.wait(TERMINAL_SECONDS if self._terminal else LINE_SECONDS):
                if self._stage:
                    self._show()

    def _show(self) -> None:
        phase = f": {self._phase}" if self._phase else ""
        line = f"[{time.monotonic() - self._start:6.1f} s] {self._stage}{phase}{self._forecast}"
        if not self._terminal:
            self._write(line + "\n")
            return
        with contextlib.suppress(OSError, ValueError):
            # A line longer than the terminal would wrap, and could not be updated.
            line = line[: os.get_terminal_size(self._stream.fileno()).columns - 1]
        self._write(f"\r\x1b[K{line}")

    def _write(self, text: str) -> None:
        # Whoever closed stderr does not want progress; the work goes on.
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
