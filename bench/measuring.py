"""What all benchmarks share: running things in turns, and one way to state a comparison."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRTCONV = str(Path(sysconfig.get_path("scripts")) / "trtconv")
PYTHON = sys.executable
_LOOK_SECONDS = 0.02


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
    return lambda: _run(command, environment)


def process_megabytes(command: Sequence[str]) -> Callable[[], float]:
    """Returns a task: the peak memory of a process and all that it starts, together (Linux)."""

    def task() -> float:
        peak = [0.0]
        _run(command, None, lambda root: peak.append(max(peak.pop(), _held_megabytes(root))))
        return peak[0]

    return task


def _run(
    command: Sequence[str], environment: Mapping[str, str] | None, look: Callable[[int], None] | None = None
) -> float:
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=look is not None,
    )
    assert process.stderr is not None
    ended = threading.Event()
    looker = threading.Thread(target=_look, args=(process.pid, look, ended))
    looker.start()
    said = process.stderr.read()
    process.wait()
    seconds = time.perf_counter() - started
    ended.set()
    looker.join()
    process.stderr.close()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{said}")
    return seconds


def _look(root: int, look: Callable[[int], None] | None, ended: threading.Event) -> None:
    while look is not None and not ended.wait(_LOOK_SECONDS):
        look(root)


def _held_megabytes(root: int) -> float:
    """Returns what a process and all that it started hold; pages that several of them share count once.

    Of a file it is what the process has that maps most of it: the system's own count of shared pages (Pss) divides by
    all processes of the machine, so that a library would weigh half where somebody else runs it too.
    """
    own, files = 0, dict[str, int]()
    for pid in _descendants(root):
        with contextlib.suppress(OSError):
            # Of these, no other command has any.
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            own += sum(int(line.split()[1]) for line in rollup if line.startswith("Pss_Anon:"))
            for file, held in _mapped(pid).items():
                files[file] = max(files.get(file, 0), held)
    return (own + sum(files.values())) * 1024 / 1e6


def _mapped(pid: int) -> dict[str, int]:
    """Returns how many KiB of each file that a process maps are in memory, and are still the file's."""
    found: dict[str, int] = {}
    for file, resident, anonymous in _MAPPING.findall(Path(f"/proc/{pid}/smaps").read_text()):
        found[file] = found.get(file, 0) + int(resident) - int(anonymous)
    return found


_MAPPING = re.compile(
    r"^[0-9a-f]+-\S+ \S+ \S+ \S+ \d+ *(.*)\n(?:[A-Z]\w+: .*\n)*?Rss: *(\d+) .*\n(?:[A-Z]\w+: .*\n)*?Anonymous: *(\d+) ",
    re.MULTILINE,
)


def _descendants(root: int) -> Iterator[int]:
    # Whose parent is gone still has the session that the root began, unless it began one of its own.
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent, _, session = map(int, (folder / "stat").read_text().rpartition(")")[2].split()[1:4])
            children.setdefault(root if session == root else parent, []).append(int(folder.name))
    found = [root]
    for pid in found:
        found += (child for child in children.get(pid, ()) if child != root)
    return iter(found)


median = statistics.median
