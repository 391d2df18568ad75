"""Runs of the network before they are asked for: each of some inputs once, whoever is first."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np
import pytest

from trtconv.core.dims import InputSpec
from trtconv.runtimes.proof import ahead as module
from trtconv.runtimes.proof.ahead import Ahead, NetworkRun
from trtconv.runtimes.proof.reference import Wanted, feeds_of
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

SHAPE, MEGABYTES = (2, 3), 1e3
NETWORK = ReadNetwork(
    (ReadTensor(0, "x", "float32", SHAPE), ReadTensor(1, "y", "float32", SHAPE)),
    (ReadLayer(0, "neg", "UNARY", (0,), (1,), {"op": "NEG"}),),
    (0,),
    (1,),
)
INPUTS = (InputSpec("x", "float", SHAPE),)
GOAL = Wanted("m.onnx", None, ({"x": SHAPE},), values=({},))
FIRST = feeds_of(GOAL, 0, INPUTS)
OTHER = {"x": np.arange(6, dtype=np.float32).reshape(SHAPE)}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The inputs of each run of the network that is begun."""
    begun: list[Any] = []

    def of(run: Run) -> NetworkRun:
        begun.append(run)
        return original(run)

    original = NetworkRun.of
    monkeypatch.setattr(module.NetworkRun, "of", of)
    return begun


def ahead() -> Ahead:
    return Ahead(NETWORK, INPUTS, GOAL, math.inf, MEGABYTES)


def soon() -> float:
    return time.monotonic() + 60


def test_what_was_run_ahead_is_not_run_again(runs: list[Any]) -> None:
    work = ahead()
    work.also(OTHER)
    work.also(FIRST)
    for feeds in (FIRST, OTHER):
        np.testing.assert_array_equal(work.ran(feeds, soon()).outputs["y"], -feeds["x"])
    assert len(runs) == 2


def test_what_nobody_ran_is_run_where_it_is_asked_for_and_then_nothing_more_ahead(runs: list[Any]) -> None:
    work = ahead()
    np.testing.assert_array_equal(work.ran(OTHER, soon()).outputs["y"], -OTHER["x"])
    work.also(OTHER)
    assert len(runs) == 2


def test_who_asks_for_what_is_under_way_waits_for_it(runs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    work, go, original = ahead(), threading.Event(), Run.outputs
    work.also(FIRST)

    def outputs(run: Run) -> Any:
        assert go.wait(20)
        return original(run)

    monkeypatch.setattr(Run, "outputs", outputs)
    thread = threading.Thread(target=work.also, args=(OTHER,))
    thread.start()
    while len(runs) < 2:
        time.sleep(0.01)
    threading.Timer(0.1, go.set).start()
    assert work.ran(OTHER, soon()).run is runs[1]
    thread.join()
    assert len(runs) == 2
