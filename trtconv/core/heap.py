"""Memory that the C library keeps of what Python has given back."""

from __future__ import annotations

import contextlib
import sys


def trim() -> None:
    """Has the C library return what it keeps to the system, where it can (glibc): tens of megabytes, of models that
    were looked through. It takes some milliseconds, and no lock of Python's."""
    if sys.platform != "linux":
        return
    # Loaded only here: most processes end without.
    import ctypes

    # Others than glibc have no such function.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
