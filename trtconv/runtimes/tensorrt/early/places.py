"""Where in a model's file the weights of its network lie, so that they need not be copied for whoever has the file."""

from __future__ import annotations

from collections import deque

from trtconv.graph import wire
from trtconv.runtimes.tensorrt.early.memory import Extent, FilePart, SharedMemory

_MOST_TRIES = 8
"""Of values as many as those that are looked for: a network reads most of its weights in the order of the file."""


class Places:
    """The large weights of a file, by their content.

    Args:
        memory: Has a copy of the file, and nothing before it.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._sized: dict[int, deque[int]] = {}
        with memory.open() as file:
            try:
                is_large = file.seek(0, 2) >= wire.LARGE_FILE
                for field in wire.large_values(file) if is_large else ():
                    self._sized.setdefault(field.end - field.content, deque()).append(field.content)
            except ValueError:
                # Then they are copied.
                self._sized.clear()

    def find(self, data: memoryview) -> FilePart | None:
        """Returns where a weight lies in the file; None: nowhere, or it is not worth the search.

        Args:
            data: Its bytes.
        """
        begins = self._sized.get(data.nbytes, deque[int]())
        for _ in range(min(len(begins), _MOST_TRIES)):
            begin = begins[0]
            # Looked for last, the next time: it may be read again.
            begins.rotate(-1)
            if self._memory.holds(data, Extent(begin, data.nbytes)):
                return FilePart(begin, data.nbytes)
        return None
