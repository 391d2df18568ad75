"""The client of a farm, on a Dask that answers at once: the threads that write what comes back."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from support.onnx_models import parse
from support.runtime import RTX
from trtconv.core.dims import Range
from trtconv.core.documents.check import FailedRun
from trtconv.core.errors import InputError
from trtconv.core.files import source_checksum
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import FarmRequest
from trtconv.core.target import Target
from trtconv.engine.farm import cluster
from trtconv.engine.farm.cluster import _WRITERS, AHEAD, MOST_AHEAD, Farm
from trtconv.engine.farm.machines import Machine
from trtconv.engine.farm.results import Waiting
from trtconv.engine.farm.worker import OFFER, topic_of
from trtconv.runtimes.tensorrt import RuntimeInfo

SECONDS = 60.0
ADD = '<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y) { y = Add(x, x) }'
MACHINE = Machine((RuntimeInfo("rtx", "1.7.1", None, RTX),), cast_by={}, source=source_checksum())


class FakeClient:
    """What the farm asks of a client of Dask's; every job is done once it is sent.

    Attributes:
        sent: The names of the jobs.
        killed: How many of the first had a worker that died.
        at: Which of them it was at, by its number, or the name of another client's job; None: it did not tell.
    """

    def __init__(self) -> None:
        self.loop = self
        self.sent: list[str] = []
        self.killed = 0
        self.at: int | str | None = None

    def scheduler_info(self) -> dict[str, Any]:
        return {"workers": {"tcp://w": {"name": "w", OFFER: json.dumps(MACHINE.to_json())}}}

    def submit(self, _: Any, text: str, *__: object, key: str, **___: object) -> FakeFuture:
        self.sent.append(key)
        return FakeFuture(key, text, killed=len(self.sent) <= self.killed)

    def get_events(self, topic: str) -> tuple[tuple[float, str], ...]:
        assert topic == topic_of("tcp://w")
        told = self.sent[self.at] if isinstance(self.at, int) else self.at
        return () if told is None else ((0.0, ""), (1.0, told))

    def add_callback(self, function: Callable[..., Any], future: FakeFuture) -> None:
        asyncio.run(function(future))

    def cancel(self, _: object) -> None:
        pass

    def close(self, timeout: float) -> None:
        pass


class KilledWorker(Exception):
    """What Dask raises."""

    last_worker = SimpleNamespace(address="tcp://w", name="slow")


class FakeFuture:
    """A job that is done."""

    def __init__(self, key: str, text: str, killed: bool) -> None:
        self.key = key
        self._text = text
        self._killed = killed

    def add_done_callback(self, function: Callable[[FakeFuture], None]) -> None:
        function(self)

    async def result(self) -> tuple[memoryview, str]:
        if self._killed:
            raise KilledWorker
        return memoryview(b"engine"), self._text

    def done(self) -> bool:
        return True

    def release(self) -> None:
        pass


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    made = FakeClient()
    distributed = SimpleNamespace(
        Client=lambda *_, **__: made,
        Security=lambda **_: None,
        scheduler=SimpleNamespace(KilledWorker=KilledWorker),
    )
    for module in (cluster, __import__("trtconv.engine.farm.addresses", fromlist=["dask"])):
        monkeypatch.setattr(module, "dask", lambda: distributed)
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

    def take(self: Waiting, document: Any, fetch: Callable[[str], memoryview], worker: str | None) -> FailedRun:
        assert (document["build"]["targets"], bytes(fetch(""))) == (["rtx"], b"engine")
        write(self)
        return self.failed(f"written: {self.request.model.stem}")

    monkeypatch.setattr(Waiting, "take", take)


def run(requests: list[BuildRequest]) -> Generator[tuple[int, Any], None, None]:
    return Farm(FarmRequest(on="tcp://127.0.0.1:1")).run(requests)


def test_several_are_written_at_once_and_each_row_gets_its_own(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_what_cannot_be_written_is_one_row(client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(waiting: Waiting) -> None:
        if waiting.request.model.stem == "1":
            raise InputError("the disk is full", "Buy a larger one.")

    written_by(monkeypatch, write)
    found = dict(run(requests_in(tmp_path, 4)))
    assert [found[index].exit_code for index in range(4)] == [1, 2, 1, 1]
    assert found[1].message == "the disk is full"


def test_what_waits_to_be_written_holds_back_what_is_sent(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize("killed", range(AHEAD + 1))
def test_a_worker_that_dies_costs_the_job_that_it_was_at(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: int
) -> None:
    client.killed = killed
    written_by(monkeypatch, lambda _: None)
    found = dict(run(requests_in(tmp_path, 6)))
    begun = 1 if killed else 0
    assert [found[index].message for index in range(begun, 6)] == [f"written: {index}" for index in range(begun, 6)]
    # Nobody else is given the first one; what waited behind it is sent again.
    assert [client.sent.count(name) for name in dict.fromkeys(client.sent)] == [1] * begun + [2] * (killed - begun) + [
        1
    ] * (6 - max(killed, begun))
    if killed:
        assert found[0].message == "the worker slow died while it built this; it is not tried on another one"
        assert found[0].exit_code == 1


@pytest.mark.parametrize(("at", "failed"), [(0, [0]), (1, [1]), ("another client's", []), ("", [0])])
def test_it_is_the_job_that_it_told_of(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int | str, failed: list[int]
) -> None:
    client.killed, client.at = AHEAD, at
    written_by(monkeypatch, lambda _: None)
    found = dict(run(requests_in(tmp_path, 4)))
    assert [index for index in range(4) if "died" in found[index].message] == failed
    assert len(client.sent) == 4 + AHEAD - len(failed)


def test_more_of_what_is_quick_is_on_its_way(client: FakeClient) -> None:
    farm = Farm(FarmRequest(on="tcp://127.0.0.1:1"))
    now = time.monotonic()
    assert farm._most_sent(3) == 3 * AHEAD
    farm._came.extend([now] * 20)
    assert farm._most_sent(3) == 3 * MOST_AHEAD
    farm._came.extend([now - 60] * 20)
    assert farm._most_sent(3) == 3 * AHEAD
    farm.close()
