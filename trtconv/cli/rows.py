"""What a farm does for a command, on stderr: on a terminal rows that are updated, elsewhere a line for each job."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import FailedRun
from trtconv.core.text import clean
from trtconv.engine.farm.watching import JobWatch

if TYPE_CHECKING:
    from trtconv.pipeline.batch import Executor, Request, Result

_TICK_SECONDS = 0.5
_MOST_FAILED, _MOST_RUNNING = 5, 10
"""Rows that are shown of each."""
_MOST_WHY = 200
"""Characters of why a job failed; the end of the command says all."""
_MARKS = {0: "ok", 4: "cannot"}


class Rows(JobWatch):
    """The rows of several jobs.

    Args:
        requests: The jobs.
        stream: Where they are shown; None: nowhere.
        terminal: Whether they are updated in place.
    """

    def __init__(self, requests: Sequence[Request], stream: TextIO | None, terminal: bool) -> None:
        self._requests, self._stream, self._terminal = requests, stream, terminal
        self._start = time.monotonic()
        self._running: dict[int, tuple[str, float]] = {}
        self._unplaced: set[int] = set()
        self._failed: list[str] = []
        self._count, self._worked, self._height = 0, 0, 0
        self._lock = threading.Lock()

    def begun(self, index: int, worker: str) -> None:
        """Hears that a worker is at a job."""
        with self._lock:
            self._running[index] = worker, time.monotonic()

    def waits(self, index: int) -> None:
        """Hears that a job waits, for a worker or to be sent again."""
        with self._lock:
            self._running.pop(index, None)
            self._unplaced.discard(index)

    def unplaced(self, index: int) -> None:
        """Hears that nobody there can do a job."""
        with self._lock:
            self._unplaced.add(index)

    def ended(self, index: int, result: Result) -> None:
        """Hears what became of a job."""
        with self._lock:
            where, _ = self._running.pop(index, ("", 0.0))
            self._unplaced.discard(index)
            self._count += 1
            self._worked += bool(where)
            why = f": {remark}" if (remark := _remark(result)) else ""
            mark = _MARKS.get(result.exit_code, "FAILED")
            line = clean(f"{mark}  {self._name(index)}{f' on {where}' * bool(where)}{why}")
            if result.exit_code:
                self._failed.append(line)
            if not self._terminal:
                self._write(f"[{self._seconds():6.1f} s] {self._count} of {len(self._requests)}: {line}\n")

    def lines(self) -> list[str]:
        """Returns the rows: what failed, what runs, the longest first, and the counts."""
        with self._lock:
            now = time.monotonic()
            running = sorted(self._running.items(), key=lambda entry: entry[1][1])
            rows = [clean(f"{now - began:7.0f} s  {self._name(i)} on {w}") for i, (w, began) in running[:_MOST_RUNNING]]
            rest = len(self._requests) - self._count - len(self._unplaced)
            counts = (
                f"[{self._seconds():6.1f} s] {self._count} of {len(self._requests)} done, {len(self._failed)} failed"
            )
            nobody = f", {len(self._unplaced)} that nobody there can do" if self._unplaced else ""
            counts += f", {len(running)} at work, {rest - len(running)} waiting{nobody}{self._time_left(rest)}"
            return [*self._failed[-_MOST_FAILED:], *rows, counts]

    def show(self) -> None:
        """Draws the rows in the place of those before."""
        width = 80
        with contextlib.suppress(OSError, ValueError, AttributeError):
            assert self._stream is not None
            # A line longer than the terminal would wrap, and could not be updated.
            width = os.get_terminal_size(self._stream.fileno()).columns
        lines = self.lines()
        text = self._cleared() + "".join(f"{line[: width - 1]}\n" for line in lines)
        self._height = len(lines)
        self._write(text)

    def clear(self) -> None:
        """Takes the rows away."""
        self._write(self._cleared())
        self._height = 0

    def _cleared(self) -> str:
        return f"\x1b[{self._height}F\x1b[J" if self._height else ""

    def _name(self, index: int) -> str:
        request = self._requests[index]
        return f"{request.model.name} for {request.target or 'auto'}"

    def _seconds(self) -> float:
        return time.monotonic() - self._start

    def _time_left(self, count: int) -> str:
        # What no worker was at, such as a model that cannot be read, took no time.
        return f", about {self._seconds() / self._worked * count:.0f} s left" if self._worked and count else ""

    def _write(self, text: str) -> None:
        # Whoever closed stderr does not want rows; the work goes on.
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()


def _remark(result: Result) -> str:
    """Returns what a row says of a job beside how it ended: why it failed, or that there was nothing to do."""
    if isinstance(result, FailedRun):
        return textwrap.shorten(result.message, _MOST_WHY)
    return "up to date" if isinstance(result, BuildReport) and result.up_to_date else ""


class WatchedExecutor:
    """An executor whose results are shown as they come."""

    def __init__(self, executor: Executor, rows: Rows) -> None:
        self._executor, self._rows = executor, rows

    def run(self, requests: Sequence[Request]) -> Generator[tuple[int, Result], None, None]:
        """Yields each request's number and result, as they come."""
        with contextlib.closing(self._executor.run(requests)) as pairs:
            for index, result in pairs:
                self._rows.ended(index, result)
                yield index, result


@contextlib.contextmanager
def show_rows(requests: Sequence[Request], quiet: bool) -> Iterator[Rows]:
    """Shows rows on stderr while the block runs.

    Args:
        requests: The jobs.
        quiet: Show nothing.
    """
    stream = None if quiet else sys.stderr
    terminal = stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    rows, over = Rows(requests, stream, terminal), threading.Event()

    def tick() -> None:
        while not over.wait(_TICK_SECONDS):
            rows.show()

    thread = threading.Thread(target=tick, name="trtconv-rows", daemon=True)
    if terminal:
        thread.start()
    try:
        yield rows
    finally:
        over.set()
        if terminal:
            thread.join(timeout=1)
            rows.clear()
