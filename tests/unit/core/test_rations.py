"""What a child may take, and what does not count."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from trtconv.core import budget
from trtconv.core.rations import Ration

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MEGABYTES = 50


@pytest.fixture
def ration() -> Iterator[Ration]:
    with budget.allowed(budget.Budget(megabytes=MEGABYTES)):
        yield Ration(os.getpid(), [])


def take(megabytes: int) -> bytearray:
    return bytearray(b"x") * (megabytes << 20)


def test_memory_of_a_stage_is_held_to_the_budget(ration: Ration) -> None:
    assert ration.breach("parse") is None
    taken = take(4 * MEGABYTES)
    breach = ration.breach("parse")
    assert taken and breach is not None and "stage 'parse' takes more than" in breach.message


@pytest.mark.parametrize("stage", ["runtime", "build"])
def test_what_tensorrt_itself_takes_does_not_count_later(ration: Ration, stage: str) -> None:
    assert ration.breach(stage) is None
    taken = [take(4 * MEGABYTES)]
    assert ration.breach(stage) is None
    assert ration.breach("parse") is None
    taken.append(take(4 * MEGABYTES))
    assert len(taken) == 2 and ration.breach("parse") is not None
