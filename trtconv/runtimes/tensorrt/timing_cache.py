"""TensorRT's timing cache in a file that several builds may share at the same time.

A build starts from what the file has; when it is done, its own measurements are merged with what others have written
meanwhile, under a lock, and the file is replaced whole. The file is TensorRT's own format: trtexec reads it too.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write, locked
from trtconv.core.reading import CACHE_BYTES, read_plain


class TimingCache:
    """The timing cache of one build.

    Args:
        path: The file; it need not exist.
        config: The IBuilderConfig, which gets the cache at once.
    """

    def __init__(self, path: Path, config: Any) -> None:
        self._path = path
        self._config = config
        self._start = self._read()
        # A cache of another version or GPU is refused by TensorRT, which says so in its log; so is a damaged one.
        cache = self._made_of(self._start)
        if cache is None or not config.set_timing_cache(cache, False):
            self._start = b""
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def save(self) -> str:
        """Merges what was measured into the file.

        Returns:
            Why it was not written, in words; empty where it was.
        """
        ours = self._config.get_timing_cache()
        if ours is None:
            return "TensorRT returned no timing cache"
        try:
            with locked(self._path):
                now = self._read()
                if now and now != self._start:
                    theirs = self._made_of(now)
                    if theirs is not None:
                        ours.combine(theirs, False)
                atomic_write(self._path, bytes(memoryview(ours.serialize())), through_links=True)
        except InputError as error:
            # The engine is none the worse for it.
            return error.message
        return ""

    def _read(self) -> bytes:
        with contextlib.suppress(OSError):
            return read_plain(self._path, CACHE_BYTES)
        return b""

    def _made_of(self, data: bytes) -> Any:
        try:
            return self._config.create_timing_cache(data)
        except (RuntimeError, TypeError, ValueError):
            return None
