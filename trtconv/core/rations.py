"""What a child may take while it looks at models, before TensorRT builds: time and memory, by the size of the files.

Every stage asks the budget for what it knows beforehand; this is for what nobody knows beforehand, and the parent sees
to it, because native code and long sums of Python hear nobody.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

from trtconv.core import budget
from trtconv.core.stages import Limit, limit_of

_BYTES_A_SECOND = 100_000
_TIMES = 6
"""A model is held several times: as it is read, rewritten, and as TensorRT reads it."""


class Ration:
    """The time and the memory of a child, beyond what it has taken so far.

    Args:
        pid: The child.
        models: The files that it looks at.
    """

    def __init__(self, pid: int, models: Iterable[str | Path]) -> None:
        self._pid = pid
        size = _bytes_with_data(models)
        limits = budget.current()
        self._stage = ""
        self._before, self._memory = _usage(pid)
        self._seconds = limits.seconds + size / _BYTES_A_SECOND
        self._megabytes = self._memory + limits.megabytes + _TIMES * size / 1e6

    def breach(self, stage: str) -> budget.BudgetExceeded | None:
        """Returns what the child took too much of in a stage, or None."""
        seconds, megabytes = _usage(self._pid)
        if stage != self._stage:
            if limit_of(self._stage) is Limit.NONE:
                self._megabytes += max(0.0, megabytes - self._memory)
            self._stage, self._before, self._memory = stage, seconds, megabytes
        limit = limit_of(stage)
        if limit is Limit.NONE:
            return None
        most = self._megabytes * (2 if limit is Limit.OWN else 1)
        during = f"stage '{stage or 'load'}'"
        if megabytes > most:
            return budget.exceeded("megabytes", f"{during} takes more than {most:.0f} MB of memory")
        if limit is Limit.RATION and seconds - self._before > self._seconds:
            return budget.exceeded("seconds", f"{during} takes longer than {self._seconds:.0f} s")
        return None


class RationGuard:
    """Holds what a `core.process.Process` does in one call to a ration.

    Args:
        models: The files that it looks at.
    """

    def __init__(self, models: Iterable[str | Path]) -> None:
        self._models = models
        self._budget = budget.current()
        self._stage = ""
        self._ration: Ration | None = None

    def hear(self, event: Mapping[str, Any]) -> None:
        """Takes what the process tells: at which stage it is."""
        self._stage = event["name"]

    def watch(self, pid: int) -> None:
        """Raises BudgetExceeded where the process takes too much."""
        # Threads do not have the budget of who started them.
        with budget.allowed(self._budget):
            self._ration = self._ration or Ration(pid, self._models)
            breach = self._ration.breach(self._stage)
        if breach is not None:
            raise breach


def _bytes_with_data(models: Iterable[str | Path]) -> int:
    """Returns what models, and the files beside them that may be their data, take on the disk: holes take nothing."""
    stems: dict[Path, set[str]] = {}
    for path in map(Path, models):
        stems.setdefault(path.parent, set()).update((path.name, path.stem))
    total = 0
    for folder, begins in stems.items():
        with contextlib.suppress(OSError, ValueError), os.scandir(folder) as entries:
            total += sum(_bytes_of(entry) for entry in entries if entry.name in begins or _is_data(entry.name, begins))
    return total


def _is_data(name: str, begins: Set[str]) -> bool:
    """Whether a file may hold the weights of one whose name begins its own; a folder may have many of both."""
    return name.endswith("data") and any(name[:length] in begins for length in range(1, len(name)))


def _bytes_of(entry: os.DirEntry[str]) -> int:
    with contextlib.suppress(OSError):
        status = entry.stat()
        return min(status.st_size, getattr(status, "st_blocks", 1 << 60) * 512)
    return 0


def _usage(pid: int) -> tuple[float, float]:
    """Returns the processor time, in seconds, and the memory, in megabytes, that a process has for itself."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), budget.held_megabytes(pid)
