"""The client of a farm, on a connection that answers at once: the threads that write what comes back."""

from __future__ import annotations

import contextvars
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from support.onnx_models import parse
from support.runtime import RTX
from trtconv.core.dims import Range
from trtconv.core.documents.check import FailedRun
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.files import source_checksum
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import FarmRequest
from trtconv.core.target import Target
from trtconv.engine.farm import cluster
from trtconv.engine.farm.cluster import _WRITERS, AHEAD, MOST_AHEAD, Farm
from trtconv.engine.farm.machines import Machine
from trtconv.engine.farm.results import Waiting
from trtconv.engine.farm.watching import JobWatch
from trtconv.engine.farm.wire import Died, Done, Failed, Submit
from trtconv.runtimes.tensorrt import RuntimeInfo

SECONDS = 60.0
ADD = '<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y) { y = Add(x, x) }'
MACHINE = Machine((RuntimeInfo("rtx", "1.7.1", None, RTX),), cast_by={}, source=source_checksum())


class FakeConnection:
    """A scheduler whose workers are done with a job once it is sent.

    Attributes:
        sent: The names of the jobs.
        answer: What becomes of a job, by its number; None: the connection is lost.
    """

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.there = [MACHINE]
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.answer: Callable[[int, Submit], Any] = lambda _, submit: Done(submit.key, submit.job, "")
        self.is_lost = False
        self.starting = False

    def machines(self) -> list[Machine]:
        return self.there

    def send(self, submit: Submit, files: Sequence[bytes]) -> None:
        assert len(files) == len(submit.files)
        found = self.answer(len(self.sent), submit)
        self.sent.append(submit.key)
        self.is_lost = found is None
        self.answers.put(found and (found, b"engine"))

    def lost(self) -> EnvironmentMissing:
        return EnvironmentMissing("the connection was lost", "Start again.")

    def close(self) -> None:
        pass


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeConnection:
    made = FakeConnection()
    monkeypatch.setattr(cluster, "Connection", lambda _: made)
    return made


def requests_in(folder: Path, number: int) -> list[BuildRequest]:
    proto = parse(ADD)
    made = []
    for index in range(number):
        proto.doc_string = f"number {index}"
        onnx.save(proto, folder / f"{index}.onnx")
        made.append(BuildRequest(folder / f"{index}.onnx", dims={"n": Range(1, 1, 1)}, target=Target("rtx")))
    return made


def written_by(monkeypatch: pytest.MonkeyPatch, write: Callable[[Waiting], None]) -> None:
    """Has `write` stand for the writing of an engine."""

    def take(self: Waiting, document: Any, fetch: Callable[[str, int], memoryview], worker: str | None) -> FailedRun:
        assert (document["build"]["targets"], bytes(fetch("", 6))) == (["rtx"], b"engine")
        write(self)
        return self.failed(f"written: {self.request.model.stem}")

    monkeypatch.setattr(Waiting, "take", take)


def run(requests: list[BuildRequest]) -> Generator[tuple[int, Any], None, None]:
    return Farm(FarmRequest(on="tcp://127.0.0.1:1")).run(requests)


def test_several_are_written_at_once_and_each_row_gets_its_own(
    client: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(_WRITERS)
    threads: set[str] = set()

    def write(waiting: Waiting) -> None:
        threads.add(threading.current_thread().name)
        # Nobody gets past it unless as many are at work at the same time.
        together.wait(SECONDS)
        # The last to come is the first to end.
        time.sleep(0.02 * (_WRITERS - int(waiting.request.model.stem) % _WRITERS))

    written_by(monkeypatch, write)
    requests = requests_in(tmp_path, 2 * _WRITERS)
    # Twice the same is one job, and written for both.
    shared = [
        *requests[:-1],
        BuildRequest(requests[0].model, tmp_path / "copy", dims=requests[0].dims, target=Target("rtx")),
    ]
    found = dict(run(shared))
    assert {index: result.message for index, result in found.items()} == {
        index: f"written: {request.model.stem}" for index, request in enumerate(shared)
    }
    assert len(threads) == _WRITERS
    assert threading.current_thread().name not in threads


def test_what_cannot_be_written_is_one_row(
    client: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(waiting: Waiting) -> None:
        if waiting.request.model.stem == "1":
            raise InputError("the disk is full", "Buy a larger one.")

    written_by(monkeypatch, write)
    found = dict(run(requests_in(tmp_path, 4)))
    assert [found[index].exit_code for index in range(4)] == [1, 2, 1, 1]
    assert found[1].message == "the disk is full"


def test_what_waits_to_be_written_holds_back_what_is_sent(
    client: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, held = threading.Event(), threading.Semaphore(0)

    def write(_: Waiting) -> None:
        held.release()
        assert go.wait(SECONDS)

    written_by(monkeypatch, write)
    requests = requests_in(tmp_path, 20)
    found: dict[int, Any] = {}
    building = threading.Thread(target=lambda: found.update(run(requests)))
    building.start()
    try:
        for _ in range(_WRITERS):
            assert held.acquire(timeout=SECONDS)
        time.sleep(0.3)
        # Those at the writers, one that waits for one, and what may be ahead of it: not all models and engines.
        assert len(client.sent) <= _WRITERS + 1 + MOST_AHEAD
    finally:
        go.set()
        building.join()
    assert len(found) == len(client.sent) == 20


def test_whoever_leaves_waits_for_what_is_being_written_and_no_more(
    client: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = [], []

    def write(waiting: Waiting) -> None:
        begun.append(waiting)
        time.sleep(0.05)
        ended.append(waiting)

    written_by(monkeypatch, write)
    rows = run(requests_in(tmp_path, 12))
    next(rows)
    rows.close()
    # Several write at a time: which of them ends first is nobody's business.
    assert {id(each) for each in begun} == {id(each) for each in ended}
    assert 1 <= len(ended) < 12


def test_a_writer_has_what_its_caller_has_set(
    client: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: contextvars.ContextVar[str] = contextvars.ContextVar("own", default="nothing")
    seen: list[str] = []
    written_by(monkeypatch, lambda _: seen.append(own.get()))
    token = own.set("budget")
    try:
        assert len(dict(run(requests_in(tmp_path, 2)))) == 2
    finally:
        own.reset(token)
    assert seen == ["budget", "budget"]


def test_what_did_not_come_back_is_one_row(
    client: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[Callable[[str], Any]] = [
        lambda key: Died(key, "slow"),
        lambda key: Failed(key, "the disk is full", False),
        lambda key: Done(key, "{", ""),
        lambda key: Done(key, "[" * 100_000, ""),
    ]
    client.answer = lambda n, submit: kinds[n](submit.key) if n < len(kinds) else Done(submit.key, submit.job, "")
    written_by(monkeypatch, lambda _: None)
    found = dict(run(requests_in(tmp_path, 6)))
    assert found[0].message == "the worker slow died while it built this; it is not tried on another one"
    assert "the disk is full" in found[1].message
    assert ["the result cannot be read" in found[index].message for index in (2, 3)] == [True, True]
    assert [found[index].message for index in (4, 5)] == ["written: 4", "written: 5"]
    assert [found[index].exit_code for index in range(6)] == [1] * 6


def test_a_connection_that_is_lost_leaves_a_row_for_each(
    client: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.answer = lambda n, submit: None if n == 3 else Done(submit.key, submit.job, "")
    written_by(monkeypatch, lambda _: None)
    found = dict(run(requests_in(tmp_path, 12)))
    assert sorted(found) == list(range(12))
    lost = [index for index in range(12) if "lost" in found[index].message]
    assert set(range(4, 12)) <= set(lost)
    assert [found[index].exit_code for index in lost] == [4] * len(lost)


def test_what_nobody_can_do_is_told_to_whoever_looks_on_and_tried_once_somebody_comes(
    client: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, int]] = []

    class Watch(JobWatch):
        def unplaced(self, index: int) -> None:
            heard.append(("unplaced", index))
            if index == 1:
                client.there = [dataclasses.replace(MACHINE, labels=("h100",))]

        def waits(self, index: int) -> None:
            heard.append(("waits", index))

    monkeypatch.setattr(cluster, "_PATIENCE_SECONDS", 0.2)
    targets = ("rtx", "rtx@h100", "rtx@l4")
    requests = [
        dataclasses.replace(request, target=Target.parse(target))
        for request, target in zip(requests_in(tmp_path, 3), targets, strict=True)
    ]
    monkeypatch.setattr(Waiting, "take", lambda self, *_: self.failed("written"))
    found = dict(Farm(FarmRequest(on="tcp://127.0.0.1:1"), Watch()).run(requests))
    assert [found[index].exit_code for index in range(3)] == [1, 1, 4]
    assert heard == [("unplaced", 1), ("unplaced", 2), ("waits", 1), ("waits", 2), ("unplaced", 2)]


def test_more_of_what_is_quick_is_on_its_way(client: FakeConnection) -> None:
    farm = Farm(FarmRequest(on="tcp://127.0.0.1:1"))
    now = time.monotonic()
    assert farm._most_sent(3) == 3 * AHEAD
    farm._came.extend([now] * 20)
    assert farm._most_sent(3) == 3 * MOST_AHEAD
    farm._came.extend([now - 60] * 20)
    assert farm._most_sent(3) == 3 * AHEAD
    farm.close()


@pytest.mark.parametrize("retries", [0, 1])
def test_an_engine_that_is_not_in_the_store_is_built_again(
    client: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    sent: list[Submit] = []

    def answer(_: int, submit: Submit) -> Done:
        sent.append(submit)
        return Done(submit.key, submit.job, "")

    def send(submit: Submit, files: Sequence[bytes]) -> None:
        # As a worker does that puts engines into a store.
        client.answers.put((answer(0, submit), b"" if submit.stored else b"engine"))

    monkeypatch.setattr(client, "send", send)
    monkeypatch.setattr(cluster, "keep", lambda *_: None)
    written_by(monkeypatch, lambda _: None)
    farm = Farm(FarmRequest(on="tcp://127.0.0.1:1", store=tmp_path / "store", retries=retries))
    found = dict(farm.run(requests_in(tmp_path, 2)))
    assert [submit.stored for submit in sent].count(False) == 2 * retries
    assert [found[index].exit_code for index in range(2)] == ([1, 1] if retries else [2, 2])
    assert ("written" in found[0].message) == bool(retries)
