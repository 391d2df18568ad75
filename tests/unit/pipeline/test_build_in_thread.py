"""What happens beside a builder."""

from __future__ import annotations

import threading

import pytest

from trtconv.core.errors import InputError
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.pipeline.parse import build_in_thread
from trtconv.runtimes.tensorrt import EngineBlob

ENGINE = EngineBlob(memoryview(b"engine"), (), seconds=20.0)
"""Built by another process, long before."""


class Builder:
    """A network whose build goes on until its monitor stops it, or `done` is set."""

    def __init__(self) -> None:
        self.began, self.done, self.ended = threading.Event(), threading.Event(), False

    def build(self, plan, monitor):
        self.began.set()
        while monitor("phase", 0, 1) and not self.done.wait(0.01):
            pass
        self.ended = True
        return ENGINE


def test_others_work_while_it_builds() -> None:
    builder = Builder()

    def meanwhile() -> None:
        assert builder.began.wait(10)
        assert not builder.ended
        builder.done.set()

    clock = Stopwatch(None)
    assert build_in_thread(builder, None, clock, [meanwhile]) is ENGINE
    assert clock.spent(Stage.BUILD) == ENGINE.seconds


def test_what_fails_beside_it_stops_it_and_waits_for_it() -> None:
    builder = Builder()

    def meanwhile() -> None:
        builder.began.wait(10)
        raise InputError("the file is gone", "")

    with pytest.raises(InputError, match="gone"):
        build_in_thread(builder, None, Stopwatch(None), [meanwhile])
    assert builder.ended
