"""What all benchmarks share: running things in turns, and one way to state a comparison."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TRTCONV = str(Path(sysconfig.get_path("scripts")) / "trtconv")
PYTHON = sys.executable
_LOOK_SECONDS = 0.01


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
        held = _Held()
        _run(command, None, held.look)
        return held.peak * 1024 / 1e6

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


class _Held:
    """What a process and all that it started hold, looked at many times; pages that several of them share count once.

    Of a file it is what the process has that maps most of it: the system's own count of shared pages (Pss) divides by
    all processes of the machine, so that a library would weigh half where somebody else runs it too.

    Attributes:
        peak: The most so far, in KiB.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._others: set[int] = set()
        self._highest: dict[int, int] = {}

    def look(self, root: int) -> None:
        """Looks once."""
        own, files = 0, dict[str, int]()
        with _stopped(list(_descendants(root, self._others))) as pids:
            for pid in pids:
                with contextlib.suppress(OSError):
                    highest = _told(pid, "status", "VmHWM")["VmHWM"]
                    now = _told(pid, "smaps_rollup", "Rss", "Pss_Anon")
                    # Of these, no other command has any.
                    own += now["Pss_Anon"] + self._between(pid, highest, now["Rss"])
                    for file, held in _mapped(pid).items():
                        files[file] = max(files.get(file, 0), held)
        self.peak = max(self.peak, own + sum(files.values()))

    def _between(self, pid: int, highest: int, now: int) -> int:
        """Returns how much more than now a process had since the last look, where it never had as much before."""
        before, self._highest[pid] = self._highest.get(pid, 0), highest
        return max(0, highest - now) if highest > before > 0 else 0


@contextlib.contextmanager
def _stopped(pids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Has processes stand still meanwhile, so that what one hands to another is not counted twice."""
    stopped = [pid for pid in pids if _signalled(pid, signal.SIGSTOP)]
    try:
        yield stopped
    finally:
        for pid in stopped:
            _signalled(pid, signal.SIGCONT)


def _signalled(pid: int, signal_: signal.Signals) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_)
        return True
    return False


def _told(pid: int, file: str, *names: str) -> dict[str, int]:
    """Returns what a file of a process says of some things, in KiB."""
    lines = (line.split() for line in Path(f"/proc/{pid}/{file}").read_text().splitlines())
    told = {line[0].rstrip(":"): int(line[1]) for line in lines if line and line[0].rstrip(":") in names}
    return {name: told.get(name, 0) for name in names}


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


def _descendants(root: int, others: set[int]) -> Iterator[int]:
    """Yields a process and all that it started; `others` keeps the machine's other processes, not to be read again."""
    # Whose parent is gone still has the session that the root began, unless it began one of its own.
    children: dict[int, list[int]] = {}
    for pid in {int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()} - others:
        with contextlib.suppress(OSError):
            parent, _, session = map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1:4])
            children.setdefault(root if session == root else parent, []).append(pid)
    found = [root]
    for pid in found:
        found += (child for child in children.get(pid, ()) if child != root)
    others.update({pid for each in children.values() for pid in each}.difference(found))
    return iter(found)


def told(work: Callable[..., None], arguments: Sequence[Any], limit: float) -> tuple[list[Any], int | None]:
    """Has something done in a fork, which may end or hang; returns what it told, and its exit status (None: it hung).

    Args:
        work: Called with the arguments, and with a connection that it tells by.
        arguments: What it is called with.
        limit: Seconds from one thing told to the next.
    """
    # Forked, so that torch and the packages are loaded once.
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(*arguments, theirs))
    child.start()
    theirs.close()
    messages: list[Any] = []
    try:
        while ours.poll(limit):
            messages.append(ours.recv())
        return messages, None
    except EOFError:
        child.join(10)
        return messages, child.exitcode
    finally:
        child.kill()
        child.join()


def kept_rows(path: Path, *keys: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """Returns the rows of a call that was ended, which are a line of JSON each, by some of their keys."""
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        # The last line may be half a line.
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            rows[tuple(row[key] for key in keys)] = row
    return rows


median = statistics.median
