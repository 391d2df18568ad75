"""What a farm does where members are lost, silent or unwell: what somebody can do is done."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from support.farm import Line
from support.farm_party import SECONDS, Party, hears, hears_nothing, party, submit
from support.runtime import RTX
from trtconv.core.documents.farm import JobResult
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.requests.farm import FarmAccess, FarmRequest
from trtconv.engine.farm import dispatch, wire, worker
from trtconv.engine.farm.asking import ask
from trtconv.engine.farm.connection import Connection, Rejoined
from trtconv.engine.farm.machines import Machine
from trtconv.engine.farm.scheduler import schedule
from trtconv.engine.farm.wire import Begun, Died, Done, Drop, End, Failed, Peer, Submit
from trtconv.engine.farm.worker import Workbench
from trtconv.runtimes.tensorrt import RuntimeInfo

MACHINE = Machine((RuntimeInfo("rtx", "1", None, RTX),), cast_by={}, source="s")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "BACK_SECONDS", 0.3)


def test_a_worker_that_is_unwell_gets_what_nobody_else_can_do() -> None:
    async def talk(farm: Party) -> None:
        client, full = await farm.client(), await farm.joined(wire.WORKER, "full")
        await client.send(submit("a"), [b""])
        await hears(full, Submit)
        well = await farm.joined(wire.WORKER, "well")
        await full.send(Done(submit("a").key, "{}", "the disk is full"), [b""])
        assert (await hears(well, Submit))[0] == submit("a")
        for name in "bc":
            await client.send(submit(name), [b""])
        assert (await hears(well, Submit))[0] == submit("b")
        await hears_nothing(full, Submit)
        status = await asyncio.to_thread(ask, FarmRequest(on=farm.address))
        assert {each.name: (each.state, each.why) for each in status.workers} == {
            "full": ("aside", "the disk is full"),
            "well": ("idle", ""),
        }
        # Whoever asks waits for none.
        assert (status.waiting, [job.job for job in status.queue], status.clients) == (1, ["c"], 1)
        # Where there is nobody else it is asked again; what it cannot do then is told.
        await well.send(End())
        assert (await hears(full, Submit))[0] in (submit("b"), submit("c"))
        await client.send(submit("d"), [b""])
        for name in "bc":
            await full.send(Failed(submit(name).key, "still full", True))
        assert {(await hears(client, Failed))[0].key for _ in "bc"} == {submit("b").key, submit("c").key}

    party(talk)


@pytest.mark.parametrize("finished", [False, True])
def test_a_worker_that_comes_back_in_time_goes_on(finished: bool) -> None:
    async def talk(farm: Party) -> None:
        client, lost = await farm.client(), await farm.joined(wire.WORKER, "lost")
        await client.send(submit("a"), [b""])
        await hears(lost, Submit)
        await lost.send(Begun(submit("a").key, ""))
        assert (await hears(client, Begun))[0] == Begun(submit("a").key, "lost")
        spare = await farm.joined(wire.WORKER, "spare")
        lost.abort()
        await hears_nothing(spare, Submit)
        again = await farm.joined(wire.WORKER, "lost", has=(submit("a").key, "unknown"))
        assert (await hears(again, Submit))[0] == submit("a")
        await again.send(Done(submit("a").key, "{}", ""), [b"engine"])
        assert await hears(client, Done, Died) == (Done(submit("a").key, "{}", ""), [b"engine"])

    party(talk)


def test_a_client_that_comes_back_in_time_gets_what_was_finished_meanwhile() -> None:
    async def talk(farm: Party) -> None:
        client, busy = await farm.client(), await farm.joined(wire.WORKER)
        for name in "ab":
            await client.send(submit(name), [b""])
            await hears(busy, Submit)
        client.abort()
        await asyncio.sleep(0.05)
        await busy.send(Done(submit("a").key, "{}", ""), [b"engine"])
        again = await farm.client()
        await again.send(submit("a"), [b""])
        assert await hears(again, Done) == (Done(submit("a").key, "{}", ""), [b"engine"])
        # What it does not ask for again is ended.
        assert (await hears(busy, Drop))[0] == Drop(submit("b").key)

    party(talk)


def test_a_silent_worker_keeps_what_it_is_at_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PULSE_SECONDS", 0.05)

    async def talk(farm: Party) -> None:
        client, silent = await farm.client(), await farm.joined(wire.WORKER, "silent")
        calling = asyncio.ensure_future(client.pulse(most=10_000))
        for name in "ab":
            await client.send(submit(name), [b""])
            await hears(silent, Submit)
        await silent.send(Begun(submit("a").key, ""))
        assert (await hears(silent, Drop))[0] == Drop(submit("b").key)
        spare = await farm.joined(wire.WORKER, "spare")
        assert (await hears(spare, Submit))[0] == submit("b")
        await silent.send(Done(submit("a").key, "{}", ""), [b""])
        assert (await hears(client, Done))[0].key == submit("a").key
        calling.cancel()

    party(talk)


def test_a_job_that_is_not_begun_goes_to_another_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "BEGIN_SECONDS", 0.3)

    async def talk(farm: Party) -> None:
        client, idle = await farm.client(), await farm.joined(wire.WORKER, "idle")
        await client.send(submit("a"), [b""])
        await hears(idle, Submit)
        honest = await farm.joined(wire.WORKER, "honest")
        # Neither what it says of other jobs nor that it is there is a beginning.
        await idle.send(Begun(submit("b").key, ""))
        await idle.send(Done(submit("b").key, "{}", ""), [b""])
        assert (await hears(honest, Submit))[0] == submit("a")
        assert (await hears(idle, Drop))[0] == Drop(submit("a").key)
        await honest.send(Begun(submit("a").key, ""))
        await client.send(submit("c"), [b""])
        await hears(honest, Submit)
        # What is begun takes as long as it takes, and what waits behind it too.
        await hears_nothing(client, Failed, Died)
        await asyncio.sleep(0.3)
        await honest.send(Done(submit("a").key, "{}", ""), [b"engine"])
        assert (await hears(client, Done, Failed))[0] == Done(submit("a").key, "{}", "")
        failed, _ = await hears(client, Failed)
        assert (failed.key, failed.own) == (submit("c").key, True)
        assert "took the job and did not begin it" in failed.why
        status = await asyncio.to_thread(ask, FarmRequest(on=farm.address))
        assert {each.name: each.state for each in status.workers} == {"idle": "aside", "honest": "aside"}

    party(talk)


@pytest.mark.parametrize("size", [0, 60])
def test_a_model_on_a_slow_line_has_time_to_arrive(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(dispatch, "BEGIN_SECONDS", 0.1)
    monkeypatch.setattr(dispatch, "BYTES_A_SECOND", 10)

    async def talk(farm: Party) -> None:
        client = await farm.client()
        await farm.joined(wire.WORKER)
        await client.send(submit("a"), [bytes(size)])
        if size:
            await hears_nothing(client, Failed)
        else:
            assert (await hears(client, Failed))[0].key == submit("a").key

    party(talk)


@pytest.mark.parametrize(("jobs", "most_bytes"), [(2, 1 << 20), (9, 5)])
def test_a_scheduler_takes_no_more_than_it_has_room_for(
    monkeypatch: pytest.MonkeyPatch, jobs: int, most_bytes: int
) -> None:
    monkeypatch.setattr(dispatch, "MOST_JOBS", jobs)
    monkeypatch.setattr(dispatch, "MOST_BYTES", most_bytes)

    async def talk(farm: Party) -> None:
        client = await farm.client()
        for name in "aabc":
            await client.send(submit(name), [b"xx"])
        failed, _ = await hears(client, Failed)
        assert (failed.key, failed.own) == (submit("c").key, True)
        await client.send(Drop(submit("a").key))
        await client.send(submit("c"), [b"xx"])
        worker = await farm.joined(wire.WORKER)
        assert [(await hears(worker, Submit))[0] for _ in range(2)] == [submit("b"), submit("c")]

    party(talk)


def test_a_client_joins_again_and_a_worker_brings_what_it_was_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler ends and comes back while a job is done: it is done once, and answered."""
    go, done = threading.Event(), []

    def do(self: Workbench, order: worker.Order) -> tuple[object, bytes]:
        assert go.wait(SECONDS)
        done.append(order.submit.key)
        raise EnvironmentMissing("the worker's own") if order.submit.job == "own" else ValueError("the job's")

    monkeypatch.setattr(Workbench, "do", do)

    async def run() -> None:
        address, lines = "tcp://127.0.0.1:0", asyncio.Queue[str]()
        loop = asyncio.get_running_loop()
        connection, serving = None, None
        for turn in range(2):
            ready: asyncio.Future[str] = loop.create_future()
            scheduling = asyncio.ensure_future(schedule(address, FarmAccess(), ready.set_result))
            address = await ready
            if not turn:
                serve = worker.serve(address, FarmAccess(), lambda: MACHINE, "w", None, lines.put_nowait)
                serving = asyncio.ensure_future(serve)
                assert "offers" in await lines.get()
                connection = await asyncio.to_thread(Connection, FarmRequest(on=address))
                connection.send(submit("own"), [b""])
                answer = await asyncio.to_thread(connection.answers.get, timeout=SECONDS)
                assert not isinstance(answer, Rejoined) and answer is not None and isinstance(answer[0], Begun)
                scheduling.cancel()
                await asyncio.gather(scheduling, return_exceptions=True)
        assert connection is not None and serving is not None
        assert isinstance(await asyncio.to_thread(connection.answers.get, timeout=SECONDS), Rejoined)
        while "back" not in await lines.get():
            pass
        connection.send(submit("own"), [b""])
        answer = await asyncio.to_thread(connection.answers.get, timeout=SECONDS)
        assert not isinstance(answer, Rejoined) and answer is not None and isinstance(answer[0], Begun)
        go.set()
        answer = await asyncio.to_thread(connection.answers.get, timeout=SECONDS)
        assert not isinstance(answer, Rejoined) and answer is not None
        assert answer[0] == Failed(submit("own").key, "EnvironmentMissing: the worker's own", True)
        assert done == [submit("own").key]
        await asyncio.to_thread(connection.close)
        for task in (serving, scheduling):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_a_scheduler_that_does_not_come_back_ends_a_worker() -> None:
    async def talk(farm: Party) -> None:
        serve = worker.serve(farm.address, FarmAccess(reconnect=0.0), lambda: MACHINE, "w", None, lambda _: None)
        serving = asyncio.ensure_future(serve)
        while not (await asyncio.to_thread(ask, FarmRequest(on=farm.address))).workers:
            await asyncio.sleep(0.02)
        farm.end()
        # It said that it ends, and does not come back.
        await asyncio.wait_for(serving, SECONDS)
        silent = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        address = f"tcp://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        with pytest.raises(EnvironmentMissing):
            await worker.serve(address, FarmAccess(reconnect=0.0), lambda: MACHINE, "w", None, lambda _: None)
        silent.close()

    party(talk)


def test_clients_know_of_a_worker_that_starts() -> None:
    async def talk(farm: Party) -> None:
        looking = threading.Event()

        def look() -> Machine:
            assert looking.wait(SECONDS)
            return MACHINE

        serving = asyncio.ensure_future(worker.serve(farm.address, FarmAccess(), look, "w", None, lambda _: None))
        connection = await asyncio.to_thread(Connection, FarmRequest(on=farm.address))
        while not connection.starting:
            await asyncio.sleep(0.02)
        assert connection.machines() == []
        looking.set()
        while connection.starting or not connection.there:
            await asyncio.sleep(0.02)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await asyncio.to_thread(connection.close)

    party(talk)


@pytest.mark.parametrize("whose", ["client", "worker"])
def test_an_engine_goes_on_where_its_line_ended(monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    """Over a line that breaks every megabyte, each part of an engine comes once, and it is built once."""
    engine, built = random.Random(1).randbytes(5 << 20), []

    def do(_: Workbench, order: worker.Order) -> tuple[JobResult, bytes]:
        built.append(order)
        return JobResult("job"), engine

    monkeypatch.setattr(Workbench, "do", do)

    async def talk(farm: Party) -> None:
        line = Line(farm.address, most=1 << 20)
        bad = line.address.replace("tls", "tcp")
        near, far = (bad, farm.address) if whose == "client" else (farm.address, bad)
        serving = asyncio.ensure_future(worker.serve(far, FarmAccess(), lambda: MACHINE, "w", None, lambda _: None))
        connection = await asyncio.to_thread(Connection, FarmRequest(on=near))
        answer = None
        connection.send(submit("a"), [b""])
        while answer is None or isinstance(answer, Rejoined) or not isinstance(answer[0], Done):
            answer = await asyncio.to_thread(connection.answers.get, timeout=SECONDS)
            if isinstance(answer, Rejoined):
                connection.send(submit("a"), [b""])
        assert answer[1] == engine
        assert (len(built), len(line.carried) >= 8) == (1, True)
        assert sum(line.carried) < 1.3 * len(engine)
        await asyncio.to_thread(connection.close)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        line.close()

    party(talk)


def test_a_worker_brings_all_that_a_deaf_scheduler_did_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that is stopped for a while has heard of none of the jobs that it had given."""
    built: list[str] = []

    def do(_: Workbench, order: worker.Order) -> tuple[JobResult, bytes]:
        built.append(order.submit.job)
        return JobResult(order.submit.job), b"engine"

    monkeypatch.setattr(Workbench, "do", do)
    orders = [submit("a"), submit("b")]

    async def run() -> None:
        came = asyncio.Queue[Peer]()
        server = await asyncio.start_server(lambda *line: came.put_nowait(Peer(*line)), "127.0.0.1", 0)
        address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        serving = asyncio.ensure_future(worker.serve(address, FarmAccess(), lambda: MACHINE, "w", None, lambda _: None))
        for turn in range(2):
            peer = await asyncio.wait_for(came.get(), SECONDS)
            joined, _ = await hears(peer, wire.Join)
            assert sorted(joined.has) == sorted(order.key for order in orders if turn)
            await peer.send(wire.Welcome())
            for order in orders:
                await peer.send(order, [b""])
            said = [await hears(peer, Done) for _ in orders]
            assert {(message.key, files[0]) for message, files in said} == {(order.key, b"engine") for order in orders}
            peer.abort()
        assert built == ["a", "b"]
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        server.close()

    asyncio.run(run())


def test_what_workers_write_into_their_logs_can_be_asked_for() -> None:
    async def talk(farm: Party) -> None:
        noisy = await farm.joined(wire.WORKER, "noisy")
        for number in range(dispatch.MOST_NOTES):
            await noisy.send(wire.Noted(f"line {number}"))
        await noisy.send(wire.Noted("a.onnx: failed\nfree(): \x1b[2Jinvalid\n" + "x" * 10_000))
        await noisy.send(wire.Noted(""))
        log: tuple[str, ...] = ()
        while not log or "xxx" not in log[-1]:
            log = (await asyncio.to_thread(ask, FarmRequest(on=farm.address))).log
        assert len(log) == dispatch.MOST_NOTES
        assert log[-3].endswith(" noisy: a.onnx: failed")
        assert log[-2].startswith("  free(): ") and "\x1b" not in log[-2]
        assert len(log[-1]) < dispatch.MOST_NOTE

    party(talk)
