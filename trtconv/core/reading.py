"""The one door for what is read: whatever a path leads to, it is a plain file of a size that it may have, or an error.

What lies in a stranger's folder, or in one that all may write, may be a pipe that nobody writes to, a device without an
end, a folder, or a file of a terabyte that takes no room on the disk.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

DOCUMENT_BYTES = 1 << 28
"""Most of a report, a result, or another JSON document."""
CACHE_BYTES = 1 << 30
"""Most of what was measured in earlier builds."""
KEY_BYTES = 1 << 16
"""Most of a key."""
MOST_BYTES = 1 << 36
"""Most of any file that is read to its end."""
_HOLLOW_BYTES, _HOLLOW_SHARE = 1 << 30, 64
"""Above so many bytes a file is hollow where less than one in so many lies on the disk; compression spares less."""


def open_plain(path: Path, most: int | None = None) -> BinaryIO:
    """Opens a file for reading.

    Args:
        path: The file.
        most: How many bytes it may have; None: any number.

    Raises:
        OSError: It cannot be read, is not a plain file, or is larger.
    """
    # Not to wait for the other end of a pipe, nor to have a terminal end this process.
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"))
    handle = os.open(path, flags)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        if most is not None and status.st_size > most:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes, where {most} are the most", str(path))
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def read_plain(path: Path, most: int | None = None) -> bytes:
    """Returns the content of a file; see `open_plain`. Without a limit it may be as large as the memory."""
    with open_plain(path, _memory() if most is None else most) as file:
        _refuse_hollow(file, path)
        # As much as there was when it was opened, since it may grow meanwhile; `read` takes the memory that it is asked
        # for at once, so `most` would take gigabytes for a file of a few bytes.
        return file.read(os.fstat(file.fileno()).st_size)


def _memory() -> int:
    """Returns how large a file may be that is read at once: no larger than this machine's memory."""
    try:
        return min(MOST_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return MOST_BYTES


def _refuse_hollow(file: BinaryIO, path: Path) -> None:
    """Raises OSError for a large file that is next to nothing on the disk: zeros that nobody has stored."""
    status = os.fstat(file.fileno())
    if is_hollow(status):
        size = bytes_on_disk(status)
        raise OSError(errno.EFBIG, f"of its {status.st_size} bytes only {size} are there", str(path))


def is_hollow(status: os.stat_result) -> bool:
    """Whether a file is large, and next to nothing of it is on the disk."""
    return status.st_size > max(_HOLLOW_BYTES, bytes_on_disk(status) * _HOLLOW_SHARE)


def bytes_on_disk(status: os.stat_result) -> int:
    """Returns how much a file takes; what the system does not say is all."""
    blocks: int | None = getattr(status, "st_blocks", None)
    return status.st_size if blocks is None else blocks * 512


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal; raises as `open_plain`, and for one without an end."""
    sha = hashlib.sha256()
    with open_plain(path, MOST_BYTES) as file:
        _refuse_hollow(file, path)
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    return sha.hexdigest()
