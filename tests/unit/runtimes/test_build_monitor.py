"""What a progress hears of the phases of TensorRT's builder."""

from __future__ import annotations

import types
from typing import Any

from trtconv.runtimes.tensorrt.monitor import BuildProgress, make_progress_monitor


def heard_of(going: bool = True) -> tuple[Any, list[tuple[str, int, int]]]:
    told: list[tuple[str, int, int]] = []

    def hear(phase: str, step: int, steps: int) -> bool:
        told.append((phase, step, steps))
        return going

    session: Any = types.SimpleNamespace(failure=None)
    trt = types.SimpleNamespace(IProgressMonitor=object)
    return make_progress_monitor(trt, BuildProgress(session, hear)), told


def test_a_phase_ends_with_all_its_steps() -> None:
    monitor, told = heard_of()
    monitor.phase_start("Building engine", None, 6)
    for step in range(5):
        assert monitor.step_complete("Building engine", step)
    monitor.phase_finish("Building engine")
    assert [step for _, step, _ in told] == [0, 1, 2, 3, 4, 5, 6]


def test_the_last_step_is_told_once() -> None:
    monitor, told = heard_of()
    monitor.phase_start("Tactics", None, 1)
    monitor.step_complete("Tactics", 0)
    monitor.phase_finish("Tactics")
    assert told == [("Tactics", 0, 1), ("Tactics", 1, 1)]


def test_a_build_that_was_stopped_tells_no_end() -> None:
    monitor, told = heard_of(going=False)
    monitor.phase_start("Building engine", None, 6)
    assert not monitor.step_complete("Building engine", 0)
    monitor.phase_finish("Building engine")
    assert [step for _, step, _ in told] == [0]
