"""What the process does that builds early, piece by piece, without TensorRT."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.requests.build import BuildRequest
from trtconv.core.target import Target
from trtconv.runtimes.tensorrt.base import Capabilities, DeconvLayer, EngineBlob, RuntimeInfo
from trtconv.runtimes.tensorrt.early import worker
from trtconv.runtimes.tensorrt.early.memory import Memories
from trtconv.runtimes.tensorrt.early.messages import PhaseMessage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are forked on Linux alone")

REQUEST = BuildRequest(Path("m.onnx"), target=Target("rtx"))
INFO = RuntimeInfo("rtx", "1.7.1.116", None, Capabilities(frozenset(), *[True] * 7))
LAYER = DeconvLayer("d", "up", (2,), (2,), (1,), (0, 1), (0, 1), "EXPLICIT_ROUND_DOWN", 1, 1, False, (), (), "y")


@pytest.mark.parametrize(
    ("shapes", "shape_inputs", "layers", "expected"),
    [
        ([(1, 3), (4,)], (), (), True),
        ([(1, 3), (4, -1)], (), (), False),
        ([(1, 3)], ("x",), (), False),
        ([(1, 3)], (), (LAYER,), True),
        ([(-1, 3)], (), (LAYER,), False),
        ([(1, 3)], (), (LAYER, dataclasses.replace(LAYER, padding_mode="SAME_UPPER")), False),
        ([(1, 3)], (), (LAYER, dataclasses.replace(LAYER, post_padding=(1, 1))), False),
        ([(1, 3)], (), (LAYER, dataclasses.replace(LAYER, onnx_node="node_of_y")), False),
    ],
)
def test_a_plan_is_sure_where_nothing_is_to_be_chosen_or_written_anew(
    shapes: list[tuple[int, ...]], shape_inputs: tuple[str, ...], layers: tuple[DeconvLayer, ...], expected: bool
) -> None:
    inputs = [TensorInfo("x", "input", "float32", shape) for shape in shapes]
    network: Any = SimpleNamespace(inputs=inputs, shape_inputs=shape_inputs, deconvolutions=layers)
    assert worker._is_sure(network) is expected


@pytest.mark.parametrize(
    ("target", "planned"),
    [
        (None, Target("rtx", (1, 7))),
        (Target("rtx"), Target("rtx", (1, 7))),
        (Target("rtx", (1, 3)), Target("rtx", (1, 3))),
    ],
)
def test_a_plan_is_for_the_version_that_is_asked_for(target: Target | None, planned: Target) -> None:
    assert worker._plan_of(dataclasses.replace(REQUEST, target=target), INFO) == BuildPlan(planned)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"some\n\x08location\x12\x06w.data", True),
        (b"some location", False),
        (b"\n\x08location" + bytes(worker._LIGHT_BYTES), False),
        (b"\n\x08location" + bytes(worker._LIGHT_BYTES - 10), True),
    ],
)
def test_a_light_file_that_names_others_has_them(memories: Memories, content: bytes, expected: bool) -> None:
    part = memories.model.append(content)
    assert worker._Worker._has_other_files(SimpleNamespace(_model=memories.model), part) is expected


def test_phases_are_told_a_tenth_of_a_second_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 100.05, 100.125, 100.2, 100.25])
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: next(times)))
    told: list[PhaseMessage] = []
    process: Any = SimpleNamespace(_phase_time=0.0, _tell=told.append)
    assert all(worker._Worker._phase(process, "phase", step, 9) for step in range(5))
    assert told == [PhaseMessage("phase", step, 9) for step in (0, 2, 4)]


def test_an_engine_is_handed_over_with_what_was_said_since(memories: Memories) -> None:
    told: list[Any] = []
    log = [("INFO", "a")]
    process: Any = SimpleNamespace(_engine=memories.engine, _tell=told.append, _log=log)
    process._new_words = lambda: worker._Worker._new_words(process)
    worker._Worker._hand_over(process, EngineBlob(memoryview(b"engine"), ("careful",)), 1.5)
    worker._Worker._hand_over(process, EngineBlob(memoryview(b"another"), ()), 2.5)
    assert [bytes(memories.engine.view(each.engine)) for each in told] == [b"engine", b"another"]
    assert [(each.warnings, each.seconds, each.words.log) for each in told] == [
        (("careful",), 1.5, (("INFO", "a"),)),
        ((), 2.5, ()),
    ]


@pytest.mark.parametrize(
    ("before", "is_less"),
    [((-1, -1), True), ((1, 5), False), ((-1, 5), False), ((10**15, 10**15), True), ((10**15, -1), True)],
)
def test_a_model_is_looked_at_within_the_budget(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], is_less: bool
) -> None:
    import resource

    limits = dict.fromkeys((resource.RLIMIT_CPU, resource.RLIMIT_DATA), before)
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    monkeypatch.setattr(worker.budget, "allowance", lambda size: (size * 1.5, size * 10.0))
    monkeypatch.setattr(worker.budget, "held_megabytes", lambda pid: 7.5 if pid == os.getpid() else 0)
    times = os.times()
    with pytest.raises(ZeroDivisionError), worker._rationed(30):
        ((seconds, hard), (most, hard_too)) = limits[resource.RLIMIT_CPU], limits[resource.RLIMIT_DATA]
        assert hard == hard_too == before[1]
        if is_less:
            assert 45 <= seconds - int(times.user + times.system) <= 48
            assert most == 307_500_000
        else:
            assert seconds == most == next(limit for limit in before if limit != -1)
        1 / 0  # noqa: B018
    assert set(limits.values()) == {before}
