"""Processes with TensorRT in them that are asked one thing at a time; one that dies or hangs costs its task alone."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import faulthandler
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SLOW = 45.0
"""Seconds after which a task's stack is printed."""
Row = dict[str, Any]


class Child:
    """A process that takes tasks as lines of JSON on its input, and answers with lines of JSON.

    Args:
        command: What it runs: it must call `serve`.
    """

    def __init__(self, command: list[str]) -> None:
        # Kernels that no engine uses are not loaded: a start takes a fraction of the time.
        environment = {**os.environ, "CUDA_MODULE_LOADING": "LAZY"}
        pipes: Mapping[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, **pipes, text=True, env=environment)
        self.task: Row | None = None

    @property
    def pipe(self) -> Any:
        """Where its answers come from."""
        return self._process.stdout

    def ask(self, task: Row) -> None:
        """Gives it a task."""
        assert self._process.stdin is not None
        self.task = task
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
    """

    def __init__(self, command: list[str], count: int) -> None:
        self._command = command
        self._all = [Child(command) for _ in range(count)]

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._all:
            child.end()

    def run(self, tasks: list[Row], begin: float, end: float, done: Callable[[Row, Row], None]) -> None:
        """Has tasks done, the first ones first.

        Args:
            tasks: What is asked.
            begin: Nothing begins after that, of `time.monotonic()`.
            end: Nothing goes on after that.
            done: Called with each task and its answer, which has "failed" where there is none.
        """
        queue = list(tasks)
        while queue or any(child.task for child in self._all):
            if queue and time.monotonic() > begin:
                for task in queue:
                    done(task, {"failed": "out of time"})
                queue.clear()
            for child in self._all:
                if queue and child.task is None:
                    child.ask(queue.pop(0))
            busy = [child for child in self._all if child.task]
            readable = select.select([child.pipe for child in busy], [], [], 0.5)[0]
            for child in busy:
                self._receive(child, child.pipe in readable, time.monotonic() > end, done)

    def _receive(self, child: Child, readable: bool, late: bool, done: Callable[[Row, Row], None]) -> None:
        line = child.pipe.readline() if readable else ""
        task = child.task or {}
        if line:
            child.task = None
            done(task, json.loads(line))
        elif readable or late:
            code = child.end()
            self._all[self._all.index(child)] = Child(self._command)
            done(task, {"failed": "took too long" if late else f"the process died ({code})"})


def serve(start: Callable[[], Callable[[Row], Row]]) -> int:
    """Does what the lines on stdin say, in a child; what libraries print goes to stderr.

    Args:
        start: Makes what does one task; called at the first.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work: Callable[[Row], Row] | None = None
    for line in sys.stdin:
        try:
            work = work or start()
            # Of what hangs, stderr tells where.
            faulthandler.dump_traceback_later(_SLOW, file=sys.stderr)
            answer = work(json.loads(line))
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"[:400]}
        faulthandler.cancel_dump_traceback_later()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


def options(about: str | None, most_jobs: int, seconds: float = 60) -> argparse.Namespace:
    """Returns the flags of a script that has its tasks done by such processes; `worker` says that it is one.

    Args:
        about: What the script does, its docstring.
        most_jobs: How many processes can be of use.
        seconds: How long it may take, where nothing else is said.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=max(1, min(most_jobs, (os.cpu_count() or 2) - 2)))
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--family", default="tensorrt", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_script(script: str, tasks: list[Row], given: argparse.Namespace, name: str) -> list[Row]:
    """Has the tasks of a script done; returns them with their answers, and keeps them in a file as they come.

    Args:
        script: The file of the script, which calls `serve` where it is a worker.
        tasks: What is asked.
        given: Its flags, of `options`.
        name: Of the file.
    """
    started = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []

    def done(task: Row, answer: Row) -> None:
        rows.append({**task, **answer})
        document = {"date": str(datetime.date.today()), "rows": rows, "seconds": time.monotonic() - started}
        (given.out / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    end = started + given.seconds
    command = [sys.executable, str(Path(script).resolve()), "--worker", "--family", given.family]
    with Children(command, min(given.jobs, len(tasks))) as children:
        children.run(tasks, end - 5, end, done)
    return rows
