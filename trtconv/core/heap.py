"""What the C library keeps of memory that was freed."""

from __future__ import annotations

import contextlib

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""What glibc calls the limits (malloc.h)."""
_LARGE_BYTES = 1 << 17


def give_back_what_is_freed() -> None:
    """Has large blocks of this process's memory go back to the system when they are freed.

    The C library would keep all that are no larger than the largest that was ever freed, and weights are large.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        # Other C libraries than glibc have no such function.
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_TRIM_THRESHOLD, 2 * _LARGE_BYTES)
