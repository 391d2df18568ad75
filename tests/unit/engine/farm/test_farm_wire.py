"""Messages of a farm: what comes from a stranger is read as one of a few forms, or not at all; none of it is run."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from support.farm_messages import MESSAGES, Canary, framed
from trtconv.engine.farm import wire
from trtconv.engine.farm.resuming import beginning, whole
from trtconv.engine.farm.wire import Done, Gone, Peer


def told(data: bytes, most_bytes: int = 0, most_json: int = wire.MOST_JSON) -> Any:
    """Returns what is read of bytes that somebody sent."""

    async def read() -> Any:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        unused: Any = None
        return await Peer(reader, unused).receive(most_bytes, most_json)

    return asyncio.run(read())


def over_tcp(talk: Any) -> Any:
    """Runs a coroutine with the two ends of a connection."""

    async def run() -> Any:
        ends: asyncio.Queue[Peer] = asyncio.Queue()
        server = await asyncio.start_server(lambda r, w: ends.put_nowait(Peer(r, w)), "127.0.0.1", 0)
        near = Peer(*await asyncio.open_connection(*server.sockets[0].getsockname()))
        far = await ends.get()
        try:
            work: Coroutine[Any, Any, Any] = talk(near, far)
            return await work
        finally:
            near.abort()
            far.abort()
            server.close()

    return asyncio.run(run())


def test_a_line_that_closed_before_is_aborted_without_an_error() -> None:
    """asyncio of Python 3.11.2 forgets the TLS of a transport that is closed twice, and then fails at abort."""
    aborted: list[str] = []

    class Transport:
        def abort(self) -> None:
            aborted.append("aborted")
            raise AttributeError("'NoneType' object has no attribute '_abort'")

    class Writer:
        transport = Transport()

    unused: Any = None
    writer: Any = Writer()
    Peer(unused, writer).abort()
    assert aborted == ["aborted"]


def test_messages_arrive_as_they_were_sent() -> None:
    async def talk(near: Peer, far: Peer) -> None:
        for message, files in MESSAGES:
            sending = asyncio.ensure_future(near.send(message, files))
            assert await far.receive(1 << 20) == (message, files)
            await sending
        # Several at once, large and small, do not mix.
        many = [near.send(Done(str(n), "{}", ""), [bytes([n]) * 200_000]) for n in range(8)]
        sending_all = asyncio.gather(*many)
        came = [await far.receive(1 << 20) for _ in many]
        await sending_all
        assert [(m.key, files[0][:1], len(files[0])) for m, files in came] == [
            (str(n), bytes([n]), 200_000) for n in range(8)
        ]
        far.abort()
        with pytest.raises(Gone):
            await near.receive()

    over_tcp(talk)


def test_nothing_that_comes_is_unpickled(tmp_path: Path) -> None:
    """In the place of every message, of every field, and of every file; as frames of Dask's, and in its markers."""
    canary = tmp_path / "ran"
    evil = pickle.dumps(Canary(canary))
    with pytest.raises(Gone):
        told(evil)
    with pytest.raises(Gone):
        told(framed(evil))
    for message, files in MESSAGES:
        said = {"kind": type(message).__name__, **vars(message), "sizes": [len(evil)] * len(files)}
        for key in said:
            for value in (evil.decode("latin1"), {"__Pickled__": 1}, {"__Serialized__": 1, "serializer": "pickle"}):
                changed = {**said, key: value}
                try:
                    found, came = told(framed(changed, *[evil] * len(files)), 1 << 20)
                except Gone:
                    continue
                # Where it is a text, it stays one; a file stays bytes.
                assert vars(found)[key] == value
                assert came == [evil] * len(files)
    assert not canary.exists()
    # The canary does sing.
    pickle.loads(evil)
    assert canary.exists()


def test_nothing_of_the_farm_can_unpickle() -> None:
    folder = Path(sys.modules["trtconv.engine.farm"].__file__ or "").parent
    for path in folder.glob("*.py"):
        for word in ("pickle", "marshal", "eval(", "exec(", "__import__", "distributed", "dill"):
            assert word not in path.read_text(encoding="utf-8"), (path.name, word)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        b"\0\0\0\x05{}",
        framed(b"nonsense"),
        framed(b"\xff\xfe"),
        framed(b"[" * 200_000),
        framed([]),
        framed(None),
        framed({}),
        framed({"kind": "Drop"}),
        framed({"kind": "Drop", "key": "k"}),
        framed({"kind": "Drop", "key": 1, "sizes": []}),
        framed({"kind": "Drop", "key": "k", "sizes": [0]}),
        framed({"kind": "Drop", "key": "k", "sizes": [], "more": 1}),
        framed({"kind": ["Drop"], "key": "k", "sizes": []}),
        framed({"kind": "Peer", "sizes": []}),
        framed({"kind": "__class__", "sizes": []}),
        framed({"kind": "Submit", "resource": "r", "job": "j", "stored": 1, "files": [], "sizes": []}),
        framed({"kind": "Submit", "resource": "r", "job": "j", "stored": True, "files": ["a"], "sizes": []}),
        framed({"kind": "Submit", "resource": "r", "job": "j", "stored": True, "files": [1], "sizes": [0]}),
        framed({"kind": "Done", "key": "k", "result": "", "sizes": [-1]}),
        framed({"kind": "Done", "key": "k", "result": "", "sizes": [True]}),
        framed({"kind": "Done", "key": "k", "result": "", "sizes": [2**70]}),
        framed({"kind": "Done", "key": "k", "result": "", "sizes": [10]}, b"short"),
        framed({"kind": "Done", "key": "k", "result": "", "sizes": [1001]}, b"x" * 1001),
        framed({"kind": "Machines", "workers": ["ab"], "sizes": []}),
        framed({"kind": "Machines", "workers": [[1]], "sizes": []}),
        framed({"kind": "Join", "protocol": True, "role": "", "name": "", "offer": "", "sizes": []}),
        b"\xff\xff\xff\xff",
    ],
)
def test_what_is_no_message_ends_the_connection(data: bytes) -> None:
    with pytest.raises(Gone):
        told(data, 1000)


def test_a_stranger_may_not_say_much() -> None:
    with pytest.raises(Gone, match="too long"):
        told(framed({"kind": "Drop", "key": "k" * 200, "sizes": []}), most_json=100)


def test_half_a_character_in_an_answer_is_no_fault() -> None:
    came = beginning((Done("k", "\ud800", ""), b"en"), None)
    assert whole(Done("k", "\ud800", "", skipped=2), b"gine", came) == b"engine"
    with pytest.raises(Gone):
        whole(Done("k", "?", "", skipped=2), b"gine", came)
