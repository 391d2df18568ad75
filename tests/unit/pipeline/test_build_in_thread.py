"""What happens beside a builder."""

from __future__ import annotations

import threading
from typing import ClassVar

import pytest

from trtconv.core.errors import BuildFailed, InputError
from trtconv.core.progress import NullProgress
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


def test_an_interruption_beside_it_stops_it_and_does_not_wait() -> None:
    stops: list[bool] = []
    threads: list[threading.Thread] = []

    class Native(Builder):
        """Asks its monitor only once `done` is set."""

        def build(self, plan, monitor):
            threads.append(threading.current_thread())
            self.began.set()
            self.done.wait(10)
            stops.append(not monitor("phase", 1, 1))
            self.ended = True
            return ENGINE

    builder = Native()

    def meanwhile() -> None:
        builder.began.wait(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_in_thread(builder, None, Stopwatch(None), [meanwhile])
    assert not builder.ended
    builder.done.set()
    threads[0].join(10)
    assert stops == [True]


@pytest.mark.parametrize("error", [BuildFailed("no tactic"), MemoryError(), KeyboardInterrupt()])
def test_what_ends_the_builder_is_raised_here(error: BaseException) -> None:
    class Refusing:
        def build(self, plan, monitor):
            raise error

    done: list[str] = []
    with pytest.raises(type(error)) as caught:
        build_in_thread(Refusing(), None, Stopwatch(None), [lambda: done.append("beside")])
    assert caught.value is error
    assert done == ["beside"]


def test_phases_are_told_and_the_builder_goes_on() -> None:
    class Told(NullProgress):
        phases: ClassVar[list[tuple[str, int, int]]] = []

        def phase(self, name: str, step: int, steps: int) -> None:
            self.phases.append((name, step, steps))

    class Steady:
        def build(self, plan, monitor):
            assert all(monitor(f"phase {step}", step, 3) for step in range(3))
            assert plan == "plan"
            return ENGINE

    assert build_in_thread(Steady(), "plan", Stopwatch(Told()), []) is ENGINE
    assert Told.phases == [("phase 0", 0, 3), ("phase 1", 1, 3), ("phase 2", 2, 3)]
