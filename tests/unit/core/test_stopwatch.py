"""What stages are said to have taken."""

from __future__ import annotations

from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch


def test_a_stage_counts_as_what_another_process_took_for_it() -> None:
    clock = Stopwatch(None)
    with clock.stage(Stage.BUILD):
        pass
    clock.require(Stage.BUILD, 3.00004)
    assert clock.spent(Stage.BUILD) == 3.0
    clock.require(Stage.BUILD, 2)
    assert clock.spent(Stage.BUILD) == 3.0
