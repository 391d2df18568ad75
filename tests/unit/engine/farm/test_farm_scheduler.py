"""The scheduler of a farm: who gets which job, who is told, and who is not let in."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import itertools
import json
import os
import pickle
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.farm_messages import MESSAGES, Canary, framed
from support.farm_party import SECONDS, Party, hears, hears_nothing, party, submit
from support.runtime import RTX
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.requests.farm import FarmAccess, FarmRequest
from trtconv.engine.farm import addresses, cluster, wire, worker
from trtconv.engine.farm.addresses import join, security
from trtconv.engine.farm.connection import Connection, Rejoined
from trtconv.engine.farm.keys import make_keys
from trtconv.engine.farm.machines import Machine
from trtconv.engine.farm.wire import Begun, Died, Done, Drop, Gone, Join, Machines, Submit
from trtconv.runtimes.tensorrt import RuntimeInfo


def test_jobs_go_to_those_who_can_and_results_to_those_who_wait() -> None:
    async def talk(farm: Party) -> None:
        one, two = await farm.client(), await farm.client()
        await one.send(submit("a", "big"), [b"model"])
        small, big = await farm.joined(wire.WORKER, "small"), await farm.joined(wire.WORKER, "big", labels=("big",))
        assert await hears(big, Submit) == (submit("a", "big"), [b"model"])
        await two.send(submit("a", "big"), [b"model"])
        await two.send(submit("b"), [b"other"])
        assert (await hears(small, Submit))[0] == submit("b")
        # A worker that says what it was not asked, or twice, is heard by nobody.
        await small.send(Done(submit("a", "big").key, "forged", ""), [b"x"])
        await big.send(Done(submit("a", "big").key, "{}", ""), [b"engine"])
        await big.send(Done(submit("a", "big").key, "{again}", ""), [b"engine"])
        for client in (one, two):
            assert await hears(client, Done) == (Done(submit("a", "big").key, "{}", ""), [b"engine"])
        await hears_nothing(one, Done, Died)
        assert len((await hears(await farm.joined(wire.CLIENT), Machines))[0].workers) == 2

    party(talk)


def test_a_worker_that_dies_costs_the_job_that_it_was_at() -> None:
    async def talk(farm: Party) -> None:
        client, slow = await farm.client(), await farm.joined(wire.WORKER, "slow")
        names = [submit(name) for name in "abcd"]
        for each in names:
            await client.send(each, [b""])
        assert [(await hears(slow, Submit))[0] for _ in range(2)] == names[:2]
        await hears_nothing(slow, Submit)
        await slow.send(Begun(names[0].key, ""))
        await asyncio.sleep(0.1)
        slow.abort()
        assert (await hears(client, Died))[0] == Died(names[0].key, "slow")
        spare = await farm.joined(wire.WORKER, "spare")
        assert [(await hears(spare, Submit))[0] for _ in range(2)] == names[1:3]
        # Before it says that it is at one, none is lost.
        spare.abort()
        other = await farm.joined(wire.WORKER, "other")
        for each in names[1:]:
            assert (await hears(other, Submit))[0] == each
            await other.send(Done(each.key, "{}", ""), [b""])
            assert (await hears(client, Done))[0].key == each.key

    party(talk)


def test_what_nobody_waits_for_is_taken_back() -> None:
    async def talk(farm: Party) -> None:
        one, two, worker = await farm.client(), await farm.client(), await farm.joined(wire.WORKER)
        for client in (one, two):
            await client.send(submit("a"), [b""])
        await hears(worker, Submit)
        one.abort()
        await hears_nothing(worker, Drop)
        await two.send(Drop(submit("a").key))
        assert (await hears(worker, Drop))[0] == Drop(submit("a").key)
        await two.send(submit("b"), [b""])
        assert (await hears(worker, Submit))[0] == submit("b")
        two.abort()
        assert (await hears(worker, Drop))[0] == Drop(submit("b").key)

    party(talk)


def test_whoever_has_nothing_to_do_takes_what_waits_behind_another_job() -> None:
    async def talk(farm: Party) -> None:
        client, slow = await farm.client(), await farm.joined(wire.WORKER, "slow")
        for name in "ab":
            await client.send(submit(name), [name.encode()])
            await hears(slow, Submit)
        await slow.send(Begun(submit("a").key, ""))
        quick = await farm.joined(wire.WORKER, "quick")
        assert await hears(quick, Submit) == (submit("b"), [b"b"])
        assert (await hears(slow, Drop))[0] == Drop(submit("b").key)

    party(talk)


def test_each_key_is_for_one_role(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys)
    strangers = tmp_path / "strangers"
    make_keys(strangers)

    async def talk(farm: Party) -> None:
        for role in (wire.CLIENT, wire.WORKER):
            (await farm.joined(role)).abort()
            with pytest.raises(EnvironmentMissing, match=f"the key is for a {role}"):
                await farm.joined(role, claimed=wire.WORKER if role == wire.CLIENT else wire.CLIENT)
        for role in (wire.CLIENT, wire.WORKER):
            # Its file under another name: what counts is in the certificate.
            copied = tmp_path / f"copied-{role}"
            copied.mkdir()
            other = wire.WORKER if role == wire.CLIENT else wire.CLIENT
            for name, source in (("ca", "ca"), (other, role)):
                (copied / f"{name}.pem").write_bytes((keys / f"{source}.pem").read_bytes())
            with pytest.raises(EnvironmentMissing, match=f"the key is for a {role}"):
                await Party(farm.address, copied).joined(other)
            started = time.monotonic()
            with pytest.raises(EnvironmentMissing, match=r"certificate of the scheduler .* not good"):
                await Party(farm.address, strangers).joined(role)
            # An own authority that trusts the farm's, and is not trusted by it.
            mixed = tmp_path / f"mixed-{role}"
            mixed.mkdir()
            (mixed / "ca.pem").write_bytes((keys / "ca.pem").read_bytes())
            (mixed / f"{role}.pem").write_bytes((strangers / f"{role}.pem").read_bytes())
            with pytest.raises(EnvironmentMissing, match="refused the certificate"):
                await Party(farm.address, mixed).joined(role)
            assert time.monotonic() - started < SECONDS / 3
        plain = dataclasses.replace(FarmRequest(), on=farm.address.replace("tls", "tcp"))
        with pytest.raises(EnvironmentMissing, match="no farm"):
            await asyncio.to_thread(Connection, plain)

    party(talk, keys)


@pytest.mark.parametrize("role", [wire.CLIENT, wire.WORKER])
def test_nobody_but_a_scheduler_is_one(tmp_path: Path, role: str) -> None:
    """A worker's or client's key, at the address where the scheduler should be."""
    keys, posing = tmp_path / "keys", tmp_path / "posing"
    make_keys(keys)
    posing.mkdir()
    for name, source in (("ca", "ca"), ("scheduler", role)):
        (posing / f"{name}.pem").write_bytes((keys / f"{source}.pem").read_bytes())

    async def talk(farm: Party) -> None:
        with pytest.raises(EnvironmentMissing, match=r"certificate of the scheduler .* not good"):
            await Party(farm.address, keys).joined(wire.CLIENT)

    party(talk, posing)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\0\0\0\x02{}"])
def test_who_does_not_say_who_it_is_is_sent_away(said: bytes) -> None:
    async def talk(farm: Party) -> None:
        reader, writer = await asyncio.open_connection(*addresses.host_and_port(farm.address))
        writer.write(said)
        if not said:
            writer.write_eof()
        assert await asyncio.wait_for(reader.read(), SECONDS) == b""
        writer.close()
        (await farm.joined(wire.WORKER)).abort()

    party(talk)


@pytest.mark.parametrize("role", [wire.CLIENT, wire.WORKER])
@pytest.mark.parametrize(
    "message", [wire.Welcome(), Machines([]), Died("k", "w"), wire.Overview(""), Join(1, "", "", "", [])]
)
def test_what_is_not_for_a_member_to_say_ends_its_connection(role: str, message: Any) -> None:
    async def talk(farm: Party) -> None:
        peer = await farm.joined(role)
        await peer.send(message)
        with pytest.raises(Gone):
            while True:
                await asyncio.wait_for(peer.receive(), SECONDS)

    party(talk)


def test_a_scheduler_that_does_not_answer_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EnvironmentMissing, match="no answer"):
            Connection(FarmRequest(on=address))


def test_where_nobody_listens_the_system_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(EnvironmentMissing) as refused:
        Connection(FarmRequest(on=f"tcp://127.0.0.1:{port}"))
    assert refused.value.message.endswith(f"{port}: {os.strerror(errno.ECONNREFUSED)}")


def test_a_worker_waits_for_its_scheduler_and_no_longer_for_a_stranger(
    tmp_path: Path,
) -> None:
    machine = Machine((RuntimeInfo("rtx", "1", None, RTX),), cast_by={}, source="s")
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"tcp://127.0.0.1:{held.getsockname()[1]}"
    with pytest.raises(EnvironmentMissing, match="127"):
        asyncio.run(worker.serve(address, FarmAccess(reconnect=1.0), lambda: machine, "w", None, lambda _: None))
    keys, others = tmp_path / "keys", tmp_path / "others"
    make_keys(keys)
    make_keys(others)

    async def talk(farm: Party) -> None:
        with pytest.raises(EnvironmentMissing, match="certificate"):
            await worker.serve(farm.address, FarmAccess(keys=others), lambda: machine, "w", None, lambda _: None)

    party(talk, keys)


def conversations(evil: str) -> Iterator[list[bytes]]:
    """Yields what a rogue scheduler may say, with a pickle in the place of everything."""
    messages = [*MESSAGES, (Machines([[evil, evil]]), []), (Done("k", json.dumps({"error": evil}), ""), [b""])]
    data = [evil.encode("latin1"), framed(evil.encode("latin1"))]
    for message, files in messages:
        said = {"kind": type(message).__name__, **vars(message), "sizes": [len(evil)] * len(files)}
        for key, value in itertools.product(said, (evil, [[evil, evil]], {"__Pickled__": 1, "data": evil}, [evil])):
            data.append(framed({**said, key: value}, *[evil.encode("latin1")] * len(files)))
    for each in data:
        yield [each]
        yield [framed({"kind": "Welcome", "sizes": []}), each]


@pytest.mark.parametrize("role", [wire.CLIENT, wire.WORKER])
def test_a_scheduler_with_good_keys_runs_no_code_in_its_members(tmp_path: Path, role: str) -> None:
    """Pickles in the place of every field, file and message, as frames of Dask's, and as an answer to the first one."""
    keys, canary = tmp_path / "keys", tmp_path / "ran"
    make_keys(keys)
    evil = pickle.dumps(Canary(canary)).decode("latin1")
    left = list(conversations(evil))

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for data in left.pop():
            writer.write(data)
        with contextlib.suppress(OSError):
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def run() -> None:
        context = security("tls://x:1", keys, wire.SCHEDULER)
        server = await asyncio.start_server(meet, "127.0.0.1", 0, ssl=context)
        address = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        while left:
            with contextlib.suppress(EnvironmentMissing):
                await (as_client(address) if role == wire.CLIENT else as_worker(address))
        server.close()

    async def as_client(address: str) -> None:
        connection = await asyncio.to_thread(Connection, FarmRequest(on=address, keys=keys, reconnect=0.0))
        try:
            while (answer := await asyncio.to_thread(connection.answers.get, timeout=SECONDS)) is not None:
                if not isinstance(answer, Rejoined) and not isinstance(answer[0], Begun):
                    cluster._outcome(answer[0], answer[1])
        finally:
            await asyncio.to_thread(connection.close)

    async def as_worker(address: str) -> None:
        machine = Machine((RuntimeInfo("rtx", "1", None, RTX),), cast_by={}, source="s")
        await worker.serve(address, FarmAccess(keys=keys, reconnect=0.0), lambda: machine, "w", None, lambda _: None)

    asyncio.run(run())
    assert not left
    assert not canary.exists()


def test_a_worker_with_good_keys_runs_no_code_elsewhere(tmp_path: Path) -> None:
    """Pickles in its name, its offer and its results."""
    keys, canary = tmp_path / "keys", tmp_path / "ran"
    make_keys(keys)
    evil = pickle.dumps(Canary(canary)).decode("latin1")

    async def talk(farm: Party) -> None:
        connection = await asyncio.to_thread(Connection, FarmRequest(on=farm.address, keys=keys))
        try:
            for number, text in enumerate((evil, json.dumps(evil), json.dumps({"error": evil, "report": evil}))):
                peer = await farm.joined(wire.WORKER, evil)
                connection.send(submit(str(number)), [b""])
                await hears(peer, Submit)
                await peer.send(Done(submit(str(number)).key, text, ""), [evil.encode("latin1")])
                answer = await asyncio.to_thread(connection.answers.get, timeout=SECONDS)
                assert answer is not None
                assert answer == (Done(submit(str(number)).key, text, ""), evil.encode("latin1"))
                if not isinstance(answer, Rejoined) and not isinstance(answer[0], Begun):
                    cluster._outcome(answer[0], answer[1])
                peer.abort()
            bad = Join(wire.PROTOCOL, wire.WORKER, evil, evil, [evil])
            farm.peers.append(await join(farm.address, security(farm.address, keys, wire.WORKER), bad))
            assert isinstance(await asyncio.to_thread(connection.machines), list)
        finally:
            await asyncio.to_thread(connection.close)

    party(talk, keys)
    assert not canary.exists()
