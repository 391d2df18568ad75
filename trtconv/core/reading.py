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
    """Returns the content of a file; see `open_plain`."""
    with open_plain(path, most) as file:
        # As much as there was when it was opened, since it may grow meanwhile; `read` takes the memory that it is asked
        # for at once, so `most` would take gigabytes for a file of a few bytes.
        return file.read(os.fstat(file.fileno()).st_size)


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file of any size, in hexadecimal; raises as `open_plain`."""
    sha = hashlib.sha256()
    with open_plain(path) as file:
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    return sha.hexdigest()
