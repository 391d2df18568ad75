"""Whoever opens connections to a scheduler and says nothing keeps nobody out, and holds nothing for long."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.farm_party import Party, hears, party, submit
from trtconv.engine.farm import door, wire
from trtconv.engine.farm.addresses import host_and_port
from trtconv.engine.farm.keys import make_keys
from trtconv.engine.farm.wire import Submit

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")


@contextlib.contextmanager
def strangers(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Opens connections that begin a handshake and say no more."""
    with contextlib.ExitStack() as opened:
        lines = [opened.enter_context(socket.create_connection(host_and_port(address))) for _ in range(count)]
        for line in lines:
            with contextlib.suppress(OSError):
                line.send(b"\x16")
            line.setblocking(False)
        yield lines


def are_open(lines: list[socket.socket]) -> int:
    count = 0
    for line in lines:
        try:
            count += bool(line.recv(1))
        except BlockingIOError:
            count += 1
        except OSError:
            pass
    return count


@pytest.mark.parametrize("tls", [False, True])
def test_who_says_nothing_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool) -> None:
    monkeypatch.setattr(door, "MOST_STRANGERS", 5)
    keys = tmp_path / "keys"
    make_keys(keys)

    async def talk(farm: Party) -> None:
        first = await farm.joined(wire.WORKER, "first")
        with strangers(farm.address, 40) as lines:
            client = await farm.client()
            await client.send(submit("a"), [b"model"])
            # Members are no strangers, however many of these come.
            assert await hears(first, Submit) == (submit("a"), [b"model"])
            # Those that were turned away are told so.
            for _ in range(100):
                if are_open(lines) <= 5:
                    break
                await asyncio.sleep(0.1)
            assert are_open(lines) <= 5

    party(talk, keys if tls else None)


def test_without_descriptors_a_scheduler_waits_and_turns_strangers_away(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def talk(farm: Party) -> None:
        with strangers(farm.address, 20):
            await asyncio.sleep(0.1)
            used = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, hard))
            try:
                with contextlib.suppress(OSError), strangers(farm.address, 20):
                    await asyncio.sleep(0.3)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await farm.client()

    party(talk)
    assert "Traceback" not in capfd.readouterr().err
