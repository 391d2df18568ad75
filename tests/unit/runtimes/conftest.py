"""What tests of several modules here share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trtconv.runtimes.tensorrt.early.memory import Memories, SharedMemory


@pytest.fixture
def memories() -> Iterator[Memories]:
    memories = Memories(SharedMemory(), SharedMemory(), SharedMemory())
    yield memories
    for memory in (memories.model, memories.networks, memories.engine):
        memory.close()
