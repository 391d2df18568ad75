"""Processes that examine cases; one that dies or hangs is replaced, and costs one row."""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

Row = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Job:
    """Something to do with one case.

    Args:
        name: The case.
        method: Method of `Bench`: "examine" or "time".
        seconds: How long it may take.
    """

    name: str
    method: str
    seconds: float


class _Process:
    """One process and what it is at."""

    def __init__(self, backend: str, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, backend, threads), daemon=True)
        self._process.start()
        theirs.close()
        self.job: Job | None = None
        self.deadline = time.monotonic() + _START_SECONDS
        self.versions: dict[str, str] | None = None

    def give(self, job: Job) -> None:
        self.job = job
        self.deadline = time.monotonic() + job.seconds
        self.pipe.send((job.name, job.method))

    def end(self) -> int | None:
        """Ends it; returns its exit code."""
        self.pipe.close()
        if self._process.is_alive():
            self._process.kill()
        self._process.join(20)
        return self._process.exitcode

    def wait_for_end(self) -> int | None:
        """Waits a little for a process that has closed its pipe; returns its exit code."""
        self._process.join(5)
        return self.end()


class Workers:
    """Some processes that take jobs.

    Args:
        backend: What they examine with.
        count: How many.
    """

    def __init__(self, backend: str, count: int) -> None:
        self._backend = backend
        self._threads = max(1, (os.cpu_count() or 1) // count)
        self._processes = [self._start() for _ in range(count)]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        for process in self._processes:
            process.end()

    def _start(self) -> _Process:
        return _Process(self._backend, self._threads)

    def versions(self) -> dict[str, str]:
        """Waits for the first process, and returns the versions that it found.

        Raises:
            RuntimeError: It does not start.
        """
        first = self._processes[0]
        if first.versions is None:
            if not first.pipe.poll(_START_SECONDS):
                raise RuntimeError("the first process does not start")
            message = first.pipe.recv()
            if "failure" in message:
                raise RuntimeError(message["failure"] + "\n" + message.get("trace", ""))
            first.versions = message
        return first.versions

    def run(self, jobs: Iterable[Job], done: Callable[[Job, Row], None]) -> None:
        """Does all jobs, and calls `done` with each and its result."""
        queue = deque(jobs)
        self.versions()
        while queue or any(process.job for process in self._processes):
            for process in self._processes:
                if queue and process.job is None and process.versions is not None:
                    process.give(queue.popleft())
            waiting = {process.pipe: process for process in self._processes}
            for pipe in multiprocessing.connection.wait(list(waiting), timeout=1):
                self._receive(waiting[pipe], done)  # type: ignore[index]
            for process in [p for p in self._processes if p.job and time.monotonic() > p.deadline]:
                self._replace(process, done, "took too long", hung=True)

    def _receive(self, process: _Process, done: Callable[[Job, Row], None]) -> None:
        try:
            message = process.pipe.recv()
        except (EOFError, OSError):
            self._replace(process, done, "the process died", hung=False)
            return
        if process.job is None:
            if "failure" in message:
                raise RuntimeError(message["failure"])
            process.versions = message
            return
        job, process.job = process.job, None
        done(job, message)

    def _replace(self, process: _Process, done: Callable[[Job, Row], None], why: str, *, hung: bool) -> None:
        code = process.end() if hung else process.wait_for_end()
        if process.job is None and process.versions is None:
            raise RuntimeError(f"a process does not start (exit code {code})")
        self._processes[self._processes.index(process)] = self._start()
        if process.job is not None:
            done(process.job, {"failure": f"{why} (exit code {code})"})


def _serve(pipe: Any, backend: str, threads: int) -> None:
    """Takes jobs until the pipe is closed."""
    from cases import all_cases
    from judge import Bench

    try:
        bench, cases = Bench(backend, threads), all_cases()
        pipe.send(bench.versions())
    except Exception as error:
        pipe.send({"failure": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})
        return
    while True:
        try:
            name, method = pipe.recv()
        except EOFError:
            return
        try:
            result = getattr(bench, method)(cases[name])
        except Exception as error:
            trace = traceback.format_exc()[-1500:].replace(f"{ROOT}{os.sep}", "")
            result = {"failure": f"{type(error).__name__}: {error}"[:400], "trace": trace}
        pipe.send(result)
