"""Memory that two processes share: one appends, the other looks at it without a copy."""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from trtconv.core.frozen import frozen
from trtconv.core.reading import open_plain

_ALIGNMENT = 64
_SMALL_BYTES = 1 << 12
"""Smaller arrays are copied: a view of them would save nothing."""
_COMPARED_BYTES = 1 << 16
MOST_BYTES = 1 << 30
"""Most of a file: of larger ones there may be no room for a copy."""
_PICKLE = 5
"""The first protocol that leaves large arrays where they are."""


@frozen
class Extent:
    """A part of shared memory: where it begins, and its length, in bytes."""

    begin: int
    length: int


@frozen
class FilePart:
    """A part of a file: where it begins, and its length, in bytes."""

    begin: int
    length: int


class SharedMemory:
    """A file that lies in memory, made before the fork that shares it; it is gone with the last process that has it."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("trtconv")
        self._end = 0

    def append(self, data: Any) -> Extent:
        """Copies bytes behind all others; for one of the processes."""
        view = memoryview(data).cast("B")
        begin = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        count = 0
        # Written, not mapped: this process would else have each page twice.
        while count < len(view):
            count += os.pwrite(self.descriptor, view[count:], begin + count)
        self._end = begin + len(view)
        return Extent(begin, len(view))

    def append_file(self, path: Path) -> Extent:
        """Copies the content of a file behind all else.

        Raises:
            OSError: It is not a plain file, or larger than `MOST_BYTES`.
        """
        begin = self._end
        with open_plain(path, MOST_BYTES) as file:
            while count := os.sendfile(self.descriptor, file.fileno(), self._end - begin, MOST_BYTES):
                self._end += count
        return Extent(begin, self._end - begin)

    def clear(self) -> None:
        """Gives back what is in it, in both processes; nobody may look at it any more."""
        os.ftruncate(self.descriptor, 0)
        self._end = 0

    def close(self) -> None:
        """Has what is in it live only as long as what looks at it, once both processes have said so."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def view(self, part: Extent) -> memoryview:
        """Returns what was appended, to be read alone."""
        if not part.length:
            return memoryview(b"")
        before = part.begin % mmap.ALLOCATIONGRANULARITY
        mapping = mmap.mmap(self.descriptor, before + part.length, prot=mmap.PROT_READ, offset=part.begin - before)
        return memoryview(mapping)[before:]

    def open(self) -> BinaryIO:
        """Returns all that is in it as a file, to be read alone.

        Raises:
            OSError: The system has no such files.
        """
        # Another one than this one's, whose position both processes would move.
        return open(f"/proc/self/fd/{self.descriptor}", "rb")  # noqa: PTH123

    def holds(self, data: bytes | memoryview, part: Extent) -> bool:
        """Whether a part is this data."""
        view = self.view(part)
        # As bytes, which the C library compares, and a few at a time, for which no memory is asked for.
        steps = (slice(begin, begin + _COMPARED_BYTES) for begin in range(0, len(data), _COMPARED_BYTES))
        return len(data) == len(view) and all(bytes(data[step]) == bytes(view[step]) for step in steps)

    def dump(self, value: object, find: Callable[[memoryview], FilePart | None] = lambda _: None) -> Extent:
        """Appends a value that can be pickled, its arrays one by one.

        Args:
            find: Returns where the bytes of an array lie in a file that the other process has too; None: nowhere.
        """
        arrays: list[Extent | FilePart] = []

        def is_small(buffer: pickle.PickleBuffer) -> bool:
            data = buffer.raw()
            if data.nbytes >= _SMALL_BYTES:
                arrays.append(find(data) or self.append(data))
            return data.nbytes < _SMALL_BYTES

        pickled = pickle.dumps(value, _PICKLE, buffer_callback=is_small)
        return self.append(pickle.dumps((arrays, pickled), _PICKLE))

    def load(self, part: Extent, file: Path) -> Any:
        """Returns a value that was dumped; its arrays are views of this memory, or of a file, and keep it.

        Args:
            file: The file in which `dump` found some.

        Raises:
            OSError: The file cannot be read.
            ValueError: It is too short.
        """
        arrays, pickled = pickle.loads(self.view(part))
        memory = self.view(Extent(0, part.begin))
        content = mapped(file) if any(isinstance(array, FilePart) for array in arrays) else memory
        sources = [(content if isinstance(array, FilePart) else memory, array) for array in arrays]
        buffers = [source[array.begin : array.begin + array.length] for source, array in sources]
        if any(len(buffer) < array.length for buffer, array in zip(buffers, arrays, strict=True)):
            raise ValueError("the file is too short")
        return pickle.loads(pickled, buffers=buffers)


def mapped(path: Path) -> memoryview:
    """Returns the content of a file, to be read alone; none of it is read before somebody looks at it.

    Raises:
        OSError: It is not a plain file.
        ValueError: It is empty.
    """
    with open_plain(path, MOST_BYTES) as file:
        return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))


@frozen
class Memories:
    """What the process that builds early and the command share.

    Args:
        model: Has the model's file.
        networks: Has `Snapshot`s.
        engine: Has the engine.
    """

    model: SharedMemory
    networks: SharedMemory
    engine: SharedMemory

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a fork keeps to have them."""
        return self.model.descriptor, self.networks.descriptor, self.engine.descriptor
