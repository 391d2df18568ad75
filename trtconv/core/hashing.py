"""SHA-256 of large data, taken beside other work."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

_AT_ONCE_BYTES = 1 << 17
"""What is hashed sooner than a thread is started."""


class Hashing:
    """A SHA-256 under way, in a thread: of 100 MB it takes a tenth of a second, during which Python goes on.

    Args:
        data: What is hashed; it must not change.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._hash = hashlib.sha256()
        self._thread: threading.Thread | None = None
        if len(data) <= _AT_ONCE_BYTES:
            self._hash.update(data)
            return
        self._thread = threading.Thread(target=self._hash.update, args=(data,))
        self._thread.start()

    def result(self) -> Any:
        """Waits for the hash, and returns a copy of it, which may be updated further."""
        return self.wait()._hash.copy()

    def wait(self) -> Hashing:
        """Waits until the data is not needed any more."""
        if self._thread is not None:
            self._thread.join()
        return self
