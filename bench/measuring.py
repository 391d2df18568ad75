"""What all benchmarks share: running things in turns, and one way to state a comparison."""

from __future__ import annotations

import dataclasses
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRTCONV = str(Path(sysconfig.get_path("scripts")) / "trtconv")
PYTHON = sys.executable


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One thing measured against another in the same run.

    Args:
        name: What is compared with what.
        ours: The measured value.
        reference: What it is held against.
        unit: Unit of both.
        limit: Largest ratio that is good.
        method: How each value came about: "median of 31", "minimum of 5".
    """

    name: str
    ours: float
    reference: float
    unit: str
    limit: float
    method: str

    @property
    def ratio(self) -> float:
        return self.ours / self.reference

    @property
    def is_good(self) -> bool:
        return self.ratio <= self.limit


def in_turns(tasks: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Runs tasks in turns, so that a slow moment of the machine hits all of them.

    Args:
        tasks: Each runs once and returns what it cost.
        rounds: Times that each runs, after one run that does not count.
    """
    costs: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(rounds + 1):
        for name, task in tasks.items():
            cost = task()
            if turn:
                costs[name].append(cost)
    return costs


def process_seconds(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Callable[[], float]:
    """Returns a task: the wall time of a whole process."""
    return lambda: _run(command, environment)[0]


def process_megabytes(command: Sequence[str]) -> Callable[[], float]:
    """Returns a task: the peak resident memory of a whole process."""
    return lambda: _run(command, None)[1]


def _run(command: Sequence[str], environment: Mapping[str, str] | None) -> tuple[float, float]:
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{said}")
    # Linux counts in KiB, macOS in bytes.
    return seconds, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


median = statistics.median
