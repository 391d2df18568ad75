"""SHA-256 of large data, taken beside other work."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

from trtconv.core.reading import open_plain

_AT_ONCE_BYTES = 1 << 17
"""What is hashed sooner than a thread is started."""
_CHUNK_BYTES = 1 << 20


class Hashing:
    """A SHA-256 under way, in a thread: of 100 MB it takes a tenth of a second, during which Python goes on.

    Args:
        data: What is hashed, which must not change; of a path the file.
    """

    def __init__(self, data: bytes | memoryview | Path) -> None:
        self._hash = hashlib.sha256()
        self._thread: threading.Thread | None = None
        self._failed: OSError | None = None
        if not isinstance(data, Path) and len(data) <= _AT_ONCE_BYTES:
            self._hash.update(data)
            return
        work = self._read if isinstance(data, Path) else self._hash.update
        self._thread = threading.Thread(target=work, args=(data,))
        self._thread.start()

    def _read(self, path: Path) -> None:
        try:
            with open_plain(path) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    self._hash.update(chunk)
        except OSError as error:  # Nobody hears a thread: `wait` raises it.
            self._failed = error

    def result(self) -> Any:
        """Waits for the hash, and returns a copy of it, which may be updated further; raises OSError where a file could
        not be read."""
        return self.wait()._hash.copy()

    def wait(self) -> Hashing:
        """Waits until the data is not needed any more; raises as `result`."""
        if self._thread is not None:
            self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self
