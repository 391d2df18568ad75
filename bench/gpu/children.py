"""Processes with TensorRT in them that are asked one thing at a time; one that dies or hangs costs its task alone."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import select
import subprocess
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DIED, HUNG, RAISED, LEFT = "died", "took too long", "failed", "out of time"
"""How a task can fail, "how" of its answer: the last one was not done, and may be asked again."""
_SLOW = 45.0
"""Seconds after which a task's stack is printed."""
_START_SECONDS = 120.0
"""What a process may take beside its first task."""
Row = dict[str, Any]


class Child:
    """A process that takes tasks as lines of JSON on its input, and answers with lines of JSON.

    Args:
        command: What it runs: it must call `serve`.
        environment: Of the process.
        quiet: Whether what it says on stderr is dropped.
    """

    def __init__(self, command: list[str], environment: dict[str, str], quiet: bool) -> None:
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        errors = subprocess.DEVNULL if quiet else None
        self._process = subprocess.Popen(command, **pipes, stderr=errors, text=True, env=environment)
        self.task: Row | None = None
        self.deadline, self._start = math.inf, _START_SECONDS

    @property
    def pipe(self) -> Any:
        """Where its answers come from."""
        return self._process.stdout

    def ask(self, task: Row, seconds: float) -> None:
        """Gives it a task, for which it may take so long."""
        assert self._process.stdin is not None
        self.task, self.deadline, self._start = task, time.monotonic() + self._start + seconds, 0.0
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()

    def end(self) -> int | None:
        """Ends it; returns its exit code."""
        self._process.kill()
        return self._process.wait()


class Children:
    """Several such processes.

    Args:
        command: What each runs.
        count: How many.
        quiet: Whether what they say on stderr is dropped.
    """

    def __init__(self, command: list[str], count: int, *, quiet: bool = False) -> None:
        threads = max(1, (os.cpu_count() or 1) // count)
        # Kernels that no engine uses are not loaded: a start takes a fraction of the time.
        environment = {**os.environ, "CUDA_MODULE_LOADING": "LAZY", "OMP_NUM_THREADS": str(threads)}
        self._start = lambda: Child(command, environment, quiet)
        self._all = [self._start() for _ in range(count)]

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._all:
            child.end()

    def run(
        self,
        tasks: Iterable[Row],
        done: Callable[[Row, Row], None],
        seconds: float = math.inf,
        begin: float = math.inf,
        end: float = math.inf,
    ) -> None:
        """Has tasks done, the first ones first.

        Args:
            tasks: What is asked.
            done: Called with each task and its answer, which has "failed" and "how" where there is none.
            seconds: How long one may take.
            begin: Nothing begins after that, of `time.monotonic()`.
            end: Nothing goes on after that.
        """
        queue = deque(tasks)
        while queue or any(child.task for child in self._all):
            if time.monotonic() > begin:
                for task in queue:
                    done(task, {"failed": "it was not begun", "how": LEFT})
                queue.clear()
            for child in self._all:
                if queue and child.task is None:
                    child.ask(queue.popleft(), seconds)
            busy = [child for child in self._all if child.task]
            readable = select.select([child.pipe for child in busy], [], [], 0.5)[0]
            for child in busy:
                self._receive(child, child.pipe in readable, time.monotonic() > end, done)

    def _receive(self, child: Child, readable: bool, late: bool, done: Callable[[Row, Row], None]) -> None:
        line = child.pipe.readline() if readable else ""
        task, hangs = child.task or {}, time.monotonic() > child.deadline
        if line:
            child.task = None
            done(task, json.loads(line))
        elif readable or hangs or late:
            code = child.end()
            self._all[self._all.index(child)] = self._start()
            how = DIED if readable else HUNG if hangs else LEFT
            done(task, {"failed": f"the process: {how} ({code})", "how": how})


def work_off(
    command: list[str],
    tasks: Sequence[Row],
    kept: Path,
    row_of: Callable[[Row, Row], Row],
    *,
    jobs: int,
    seconds: float,
    minutes: float,
) -> list[Row]:
    """Has tasks done by a few quiet processes; what is done is kept at once, for a call that goes on where this ends.

    Args:
        command: What each process runs.
        tasks: What is asked.
        kept: Gets a line of JSON for each that is done.
        row_of: Makes that line of a task and its answer.
        jobs: How many processes at most.
        seconds: How long one task may take.
        minutes: How long all of them may take.

    Returns:
        The rows that were kept.
    """
    rows: list[Row] = []
    with kept.open("a", encoding="utf-8") as file:

        def done(task: Row, answer: Row) -> None:
            if answer.get("how") != LEFT:
                rows.append(row_of(task, answer))
                print(json.dumps(rows[-1]), file=file, flush=True)

        end = time.monotonic() + 60 * minutes
        with Children(command, max(1, min(jobs, len(tasks))), quiet=True) as children:
            children.run(tasks, done, seconds, begin=end, end=end)
    return rows


def serve(start: Callable[[], Callable[[Row], Row]]) -> int:
    """Does what the lines on stdin say, in a child; what libraries print goes to stderr.

    Args:
        start: Makes what does one task; called at the first.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    work: Callable[[Row], Row] | None = None
    for line in sys.stdin:
        try:
            work = work or start()
            # Of what hangs, stderr tells where.
            faulthandler.dump_traceback_later(_SLOW, file=sys.stderr)
            answer = work(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"[:400], "how": RAISED}
        faulthandler.cancel_dump_traceback_later()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0
