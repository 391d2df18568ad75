"""The process that builds early, as the command has it: without a process, and without TensorRT."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trtconv.core.dims import InputRange, ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.errors import BuildFailed
from trtconv.core.requests.build import BuildRequest
from trtconv.core.target import Target
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt import logger
from trtconv.runtimes.tensorrt.base import Capabilities, ParserIssue, RuntimeInfo
from trtconv.runtimes.tensorrt.early import runtime, worker
from trtconv.runtimes.tensorrt.early.memory import Extent
from trtconv.runtimes.tensorrt.early.messages import EngineMessage, Greeting, PhaseMessage, Snapshot, Words
from trtconv.runtimes.tensorrt.early.runtime import EarlyNetwork, EarlyProcess, EarlyRuntime

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are forked on Linux alone")

REQUEST = BuildRequest(Path("m.onnx"), target=Target("rtx"))
INFO = RuntimeInfo("rtx", "1.7.1.116", None, Capabilities(frozenset(), *[True] * 7))
GREETING = Greeting(INFO)
NO_WORDS = Words((), 0)
PLAN = BuildPlan(Target("rtx", (1, 7)))
PROFILE = ShapeProfile({"x": InputRange((1, 3), (2, 3), (4, 3))}, {})
SNAPSHOT = Snapshot(Extent(0, 5), None, (), (), (), 1, (), None, NO_WORDS)


class Fork:
    """What a process tells, and whether it was ended."""

    def __init__(self) -> None:
        reads, writes = os.pipe()
        self.stdout, self.told = os.fdopen(reads, "rb"), os.fdopen(writes, "wb", buffering=0)
        self.orders, write_orders = os.pipe()
        self.stdin = os.fdopen(write_orders, "wb")
        self.ends: list[str] = []

    def kill(self) -> None:
        self.ends.append("killed")

    def wait(self) -> None:
        self.ends.append("waited")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A process with its pipes, that does nothing."""
    forks: list[Fork] = []
    monkeypatch.setattr(runtime, "Fork", lambda *_: forks.append(Fork()) or forks[-1])
    made: Any = EarlyProcess(REQUEST)
    made.fork = forks[0]
    yield made
    made._stderr.close()
    for memory in (made.memories.model, made.memories.networks, made.memories.engine):
        memory.close()
    for file in (forks[0].stdout, forks[0].told, forks[0].stdin):
        with contextlib.suppress(BrokenPipeError):
            file.close()
    os.close(forks[0].orders)


def framed(*messages: object) -> bytes:
    """Returns messages as the worker writes them."""
    reads, writes = os.pipe()
    for message in messages:
        worker._Worker._tell(SimpleNamespace(_pipe=writes), message)
    os.close(writes)
    with os.fdopen(reads, "rb") as file:
        return file.read()


def phase(number: int) -> PhaseMessage:
    return PhaseMessage(f"phase {number}", number, 9)


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 40, -1])
def test_a_message_that_comes_in_pieces_is_one(process: Any, cut: int) -> None:
    data = framed(GREETING)
    process.fork.told.write(data[:cut])
    assert process._next() is None
    assert process._next() is None
    process.fork.told.write(data[cut:])
    process.fork.told.close()
    assert process.hear(Greeting) == GREETING
    assert process.fork.ends == []


def test_messages_that_come_at_once_are_heard_one_by_one(process: Any) -> None:
    process.fork.told.write(framed(GREETING, phase(1), GREETING))
    assert process.hear(Greeting) == GREETING
    assert process.hear(Greeting) == GREETING
    process.fork.told.close()
    assert process.hear(Greeting) is None
    assert process.fork.ends == ["killed"]
    # It says nothing more, and is ended once.
    assert process.hear(Greeting) is None
    process.end()
    assert process.fork.ends == ["killed", "waited"]


def test_a_process_that_says_another_thing_is_lost(process: Any) -> None:
    process.memories.model.append(b"model")
    process.fork.told.write(framed(GREETING, EngineMessage(Extent(0, 0), (), (), 1.0, NO_WORDS)))
    assert process.hear(EngineMessage) is None
    assert process.fork.ends == ["killed"]
    assert not os.fstat(process.memories.model.descriptor).st_size


def test_phases_are_told_until_the_message_comes(process: Any) -> None:
    told: list[tuple[str, int, int]] = []
    process.fork.told.write(framed(phase(1), phase(2), GREETING))

    def monitor(*each: Any) -> bool:
        told.append(each)
        return True

    assert process.hear(Greeting, monitor) == GREETING
    assert list(dict.fromkeys(told)) == [("phase 1", 1, 9), ("phase 2", 2, 9)]


def test_a_monitor_that_stops_ends_the_process(process: Any) -> None:
    process.fork.told.write(framed(phase(1), GREETING))
    with pytest.raises(BuildFailed, match="cancelled"):
        process.hear(Greeting, lambda *_: False)
    assert process.fork.ends == ["killed"]


def test_a_monitor_is_asked_again_while_nothing_comes(process: Any) -> None:
    answers = [True, True, False]
    process.fork.told.write(framed(phase(1)))
    with pytest.raises(BuildFailed, match="cancelled"):
        process.hear(Greeting, lambda *_: answers.pop(0))
    assert answers == []


def test_what_was_said_is_passed_on_once(
    process: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    followed: list[tuple[str, str]] = []
    monkeypatch.setattr(logger, "_followers", [lambda *each: followed.append(each)])
    process._stderr.write(b"one two three")
    process.pass_on(Words((("INFO", "a"), ("WARNING", "b")), 3))
    assert capfd.readouterr().err == "one"
    process.pass_on(Words((), 7))
    # What comes behind that is said when something goes wrong.
    assert capfd.readouterr().err == " two"
    assert followed == [("INFO", "a"), ("WARNING", "b")]


def test_another_model_is_said_and_its_words_alone_are_of_interest(
    process: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    process.memories.model.append(b"first")
    process._stderr.write(b"of the first; ")
    process.fork.told.write(framed(GREETING))
    assert process.parse(b"second model") is None
    part = pickle.loads(os.read(process.fork.orders, 1 << 16))
    assert (part, process.memories.model.descriptor) == (Extent(0, 12), process.memories.model.descriptor)
    process._stderr.write(b"of the second")
    process.pass_on(Words((), 27))
    assert capfd.readouterr().err == "of the second"


def test_orders_to_a_process_that_is_gone_are_lost(process: Any) -> None:
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, process.fork.orders)
    os.close(nowhere)
    process.say(PLAN)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, process: Any) -> Any:
    """The process, begun for `REQUEST`."""
    monkeypatch.setattr(runtime, "_process", process)
    return process


def test_the_runtime_is_there_once_and_for_its_request_alone(begun: Any) -> None:
    begun.fork.told.write(framed(GREETING, GREETING))
    made = runtime.early_runtime(REQUEST)
    assert made is not None
    assert made.info == INFO
    assert runtime.early_runtime(REQUEST) is None


def test_a_request_like_another_is_another(begun: Any) -> None:
    begun.fork.told.write(framed(GREETING))
    assert runtime.early_runtime(dataclasses.replace(REQUEST)) is None


@pytest.mark.parametrize("alone", [True, False])
def test_a_model_of_several_files_is_built_here(begun: Any, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    own, asked = object(), list[Any]()
    monkeypatch.setattr(runtime, "load", lambda target: asked.append(target) or own)
    begun.fork.told.write(framed(GREETING))
    made = runtime.runtime_of(REQUEST, alone)
    assert isinstance(made, EarlyRuntime) if alone else made is own
    assert asked == ([] if alone else [REQUEST.target])
    assert begun.fork.ends == ([] if alone else ["killed"])


def test_where_nothing_was_begun_the_own_runtime_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_process", None)
    monkeypatch.setattr(tensorrt, "load", lambda target: ("own", target))
    assert runtime.runtime_of(REQUEST, alone=True) == ("own", REQUEST.target)


class Own:
    """A network of this process."""

    layer_types = ("CONVOLUTION",)

    def __init__(self) -> None:
        self.plans: list[BuildPlan] = []

    def build(self, plan: BuildPlan, monitor: object) -> str:
        self.plans.append(plan)
        return "own"

    def read_back(self) -> str:
        return "own layers"


def network_of(process: Any, snapshot: Snapshot, own: Own) -> EarlyNetwork:
    return EarlyNetwork(process, snapshot, lambda: own)


def built(process: Any) -> EngineMessage:
    part = process.memories.engine.append(b"an engine")
    return EngineMessage(part, ("a warning",), (), 2.5, NO_WORDS)


CHANGED = dataclasses.replace(PLAN, profiles=(PROFILE,), asked=(PROFILE,))


@pytest.mark.parametrize(
    ("goal", "begin", "asked", "is_taken"),
    [
        pytest.param(None, None, PLAN, True, id="as it is asked"),
        pytest.param(None, PLAN, PLAN, True, id="begun"),
        pytest.param(None, CHANGED, CHANGED, True, id="begun with profiles"),
        pytest.param(None, PLAN, CHANGED, False, id="begun otherwise"),
        pytest.param(None, CHANGED, PLAN, False, id="begun with other profiles"),
        pytest.param(PLAN, None, PLAN, True, id="known before"),
        pytest.param(PLAN, CHANGED, CHANGED, True, id="profiles of what has no sizes"),
        pytest.param(PLAN, None, dataclasses.replace(PLAN, trial=True), False, id="another one than known before"),
    ],
)
def test_an_engine_is_taken_over_if_it_was_built_by_the_same_plan(
    process: Any, goal: BuildPlan | None, begin: BuildPlan | None, asked: BuildPlan, is_taken: bool
) -> None:
    own, said = Own(), []
    process.say = said.append
    process.fork.told.write(framed(built(process)))
    network = network_of(process, dataclasses.replace(SNAPSHOT, plan=goal), own)
    if begin is not None:
        network.start(begin)
    blob = network.build(asked)
    # Who knows the plan before is told none, and nobody is told two.
    assert said == ([] if goal else [begin or asked])
    if is_taken:
        assert (bytes(blob.data), blob.warnings, blob.findings, blob.seconds) == (b"an engine", ("a warning",), (), 2.5)
        assert own.plans == []
        assert process.fork.ends == ["killed"]
    else:
        assert (blob, own.plans) == ("own", [asked])


def test_an_engine_that_does_not_come_is_built_here(process: Any) -> None:
    own = Own()
    process.fork.told.close()
    assert network_of(process, SNAPSHOT, own).build(PLAN) == "own"
    assert own.plans == [PLAN]


def test_layers_are_those_of_the_process_if_it_told_them(process: Any) -> None:
    layers: Any = object()
    assert network_of(process, dataclasses.replace(SNAPSHOT, network=layers), Own()).read_back() is layers
    assert network_of(process, SNAPSHOT, Own()).read_back() == "own layers"
    assert network_of(process, SNAPSHOT, Own()).layer_types == ("CONVOLUTION",)


def test_what_the_own_parser_refuses_fails(process: Any) -> None:
    network = EarlyNetwork(process, SNAPSHOT, lambda: (ParserIssue(0, "a", "Op", "no such type"),))
    with pytest.raises(BuildFailed, match="refuses what it has accepted: no such type"):
        network.layer_types  # noqa: B018


def model(content: bytes, path: str = "m.onnx") -> Any:
    return SimpleNamespace(path=Path(path), without_weights=lambda: content, serialize=lambda: content)


@pytest.fixture
def parsed(process: Any) -> Callable[[BuildPlan | None], EarlyRuntime]:
    """Returns a runtime whose process has parsed a model, "first", and then whatever it is given."""

    def make(plan: BuildPlan | None) -> EarlyRuntime:
        part = process.memories.model.append(b"first")
        process.snapshot = lambda: dataclasses.replace(SNAPSHOT, model=part, plan=plan)
        process.has_parsed = lambda model: False
        process.said = []
        process.say = process.said.append
        return EarlyRuntime(process, INFO)

    return make


@pytest.mark.parametrize("plan", [None, PLAN])
def test_the_same_model_has_its_network(process: Any, parsed: Any, plan: BuildPlan | None) -> None:
    assert isinstance(parsed(plan).network(model(b"first")), EarlyNetwork)
    assert process.said == []


def test_a_model_that_passes_have_changed_is_parsed_by_who_waits(process: Any, parsed: Any) -> None:
    assert isinstance(parsed(None).network(model(b"other")), EarlyNetwork)
    assert [type(order) for order in process.said] == [Extent]
    assert parsed(PLAN).network(model(b"other")) is None


def test_a_model_of_another_file_has_none(parsed: Any) -> None:
    assert parsed(None).network(model(b"first", "n.onnx")) is None


def test_a_network_that_was_begun_is_that_of_the_same_model(process: Any, parsed: Any) -> None:
    early = parsed(None)
    early.start(model(b"first"), PLAN)
    assert process.said == [PLAN]
    # Whatever else the process might parse: it builds.
    network = early.network(model(b"first"))
    assert isinstance(network, EarlyNetwork)
    assert early.network(model(b"first")) is network
    assert early.network(model(b"other")) is None


def test_what_is_not_parsed_is_not_begun(process: Any, parsed: Any) -> None:
    early = parsed(PLAN)
    early.start(model(b"other"), PLAN)
    assert process.said == []
    assert isinstance(early.network(model(b"first")), EarlyNetwork)
