"""A farm in this process, whose members say what a test has them say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from support.runtime import RTX
from trtconv.core.requests.farm import FarmAccess
from trtconv.engine.farm import wire
from trtconv.engine.farm.addresses import join, security
from trtconv.engine.farm.machines import Machine
from trtconv.engine.farm.scheduler import schedule
from trtconv.engine.farm.wire import Join, Machines, Peer, Submit
from trtconv.runtimes.tensorrt import RuntimeInfo

SECONDS = 30.0
LOCAL = "tcp://127.0.0.1:0"


class Party:
    """A farm in this process.

    Args:
        address: The scheduler's.
        keys: Its keys.
    """

    def __init__(self, address: str, keys: Path | None) -> None:
        self.address, self.keys = address, keys
        self.peers: list[Peer] = []
        self.scheduling: asyncio.Future[None] | None = None

    def end(self) -> None:
        """Ends the scheduler."""
        assert self.scheduling is not None
        self.scheduling.cancel()

    async def joined(
        self,
        role: str,
        name: str = "w",
        *,
        claimed: str | None = None,
        labels: tuple[str, ...] = (),
        has: tuple[str, ...] = (),
    ) -> Peer:
        machine = Machine((RuntimeInfo("rtx", "1", None, RTX),), labels, cast_by={}, source="s")
        said = Join(wire.PROTOCOL, claimed or role, name, json.dumps(machine.to_json()), list(has))
        self.peers.append(await join(self.address, security(self.address, self.keys, role), said))
        return self.peers[-1]

    async def client(self) -> Peer:
        """Joins as a client, and hears who is there."""
        peer = await self.joined(wire.CLIENT)
        message, _ = await peer.receive()
        assert isinstance(message, Machines)
        return peer


def resource(label: str = "*") -> str:
    return f"trtconv-s:rtx-1@{label}"


def submit(name: str, label: str = "*") -> Submit:
    return Submit(resource(label), name, False, ["sha"], name)


async def hears(peer: Peer, *kinds: type) -> Any:
    """Returns the next message that is of one of some kinds, and the files."""
    while True:
        message, files = await asyncio.wait_for(peer.receive(1 << 20), SECONDS)
        if isinstance(message, kinds):
            return message, files


async def hears_nothing(peer: Peer, *kinds: type) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(hears(peer, *kinds), 0.2)


def party(talk: Callable[[Party], Awaitable[None]], keys: Path | None = None) -> None:
    async def run() -> None:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        where = LOCAL if keys is None else LOCAL.replace("tcp", "tls")
        scheduling = asyncio.ensure_future(schedule(where, FarmAccess(keys=keys), ready.set_result))
        farm = Party(await ready, keys)
        farm.scheduling = scheduling
        try:
            await asyncio.wait_for(talk(farm), SECONDS)
        finally:
            for peer in farm.peers:
                peer.abort()
            scheduling.cancel()
            await asyncio.gather(scheduling, return_exceptions=True)

    asyncio.run(run())
