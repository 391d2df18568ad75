"""Progress on stderr: elapsed time and phase, from a thread of our own because the native build blocks."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from trtconv.cli.process import status
from trtconv.core.progress import NullProgress, Progress
from trtconv.core.text import clean

LINE_SECONDS = 10.0
TERMINAL_SECONDS = 0.2


@contextlib.contextmanager
def show_progress(quiet: bool) -> Iterator[Progress]:
    """Shows progress on stderr while the block runs.

    Args:
        quiet: Show nothing.
    """
    stream = sys.stderr
    if quiet or stream is None:
        yield _watched(NullProgress())
        return
    terminal = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    shown = _ShownProgress(stream, terminal)
    try:
        yield _watched(shown)
    finally:
        shown.close()


def _watched(progress: Progress) -> Progress:
    """Returns a progress that also tells the process that watches this one, where there is one."""
    return _Announced(progress) if status.is_watched() else progress


class _Announced:
    """Hands everything on, and announces it."""

    def __init__(self, progress: Progress) -> None:
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


class _ShownProgress:
    """On a terminal one line that is updated; elsewhere a line a stage, and one every `LINE_SECONDS`."""

    def __init__(self, stream: TextIO, terminal: bool) -> None:
        self._stream = stream
        self._terminal = terminal
        self._start = time.monotonic()
        self._stage = ""
        self._phase = ""
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Shows the stage's name, and starts the ticking with the first stage."""
        before = self._stage
        self._stage, self._phase = name, ""
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

    def close(self) -> None:
        """Stops the ticking and leaves the terminal's line empty."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=1)
        if self._terminal:
            self._write("\r\x1b[K")

    def _tick(self) -> None:
        while not self._done.wait(TERMINAL_SECONDS if self._terminal else LINE_SECONDS):
            if self._stage:
                self._show()

    def _show(self) -> None:
        phase = f": {self._phase}" if self._phase else ""
        line = f"[{time.monotonic() - self._start:6.1f} s] {self._stage}{phase}"
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
