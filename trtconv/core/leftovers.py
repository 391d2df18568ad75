"""Temporary files and folders that processes left which were killed; their names say which process it was.

They lie where others may write too. Only what is the user's own, and is what it should be, is looked at any closer:
a pipe or a link that somebody has put there under such a name is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

_LOOK = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_NOCTTY"))


def mark_as_held(handle: int) -> None:
    """Locks a temporary file or folder for as long as its writer lives."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def names_in(folder: Path) -> list[str]:
    """Returns what is in a folder; nothing where one may not look."""
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def left_in(folder: Path, names: Iterable[str], begin: str) -> Iterator[Path]:
    """Yields what dead processes have left: of names, what is called BEGIN, the number of a process, and more."""
    for name in names:
        # Most have other names, and there may be very many.
        pid = re.match("([0-9]+)[.-]", name[len(begin) :]) if name.startswith(begin) else None
        if pid and not _is_alive(int(pid[1])) and _is_let_go(folder / name):
            yield folder / name


def remove(path: Path) -> None:
    """Removes a temporary file or folder of the user's own, as far as that is possible."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if not _is_own(status):
            return
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _is_own(status: os.stat_result) -> bool:
    ours = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return ours and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))


def _is_alive(pid: int) -> bool:
    # A process that ended stays in the table of processes until somebody asks after it; in a container nobody may.
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _is_let_go(path: Path) -> bool:
    """Whether it is our own and nobody holds it; a writer in another container has another process number."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        handle = os.open(path, _LOOK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _is_own(os.fstat(handle))
        finally:
            os.close(handle)
    return False
