"""The scheduler of a farm: takes jobs from clients, gives them to workers, and passes on what these made.

It reads no job and no result, keeps nothing on disk, and gives a job whose worker dies to no other one: what took down
the first would take down the next, unless the client asks for it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

from trtconv.core.errors import InputError
from trtconv.core.requests.farm import FarmAccess
from trtconv.core.text import clean
from trtconv.engine.farm import wire
from trtconv.engine.farm.addresses import SECONDS, checked_address, host_and_port, security
from trtconv.engine.farm.dispatch import Dispatch, Member, RemoteWorker
from trtconv.engine.farm.door import Door, listen
from trtconv.engine.farm.status import status_of
from trtconv.engine.farm.wire import (
    Alive,
    Ask,
    Begun,
    Done,
    Drop,
    End,
    Failed,
    Gone,
    Join,
    Offers,
    Overview,
    Peer,
    Submit,
)

_END_SECONDS = 2.0
_MOST_SILENT = 24
"""Beats after which a member that is not heard of counts as lost: it may be stopped for a while."""


class Scheduler:
    """Talks with the members of a farm."""

    def __init__(self) -> None:
        self._dispatch = Dispatch()

    async def meet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, admit: Callable[[], object]
    ) -> None:
        """Talks with a member for as long as it is there; `admit` is called once it is seen to be one."""
        peer = Peer(reader, writer)
        try:
            join, _ = await asyncio.wait_for(peer.receive(most_json=wire.MOST_FIRST), SECONDS)
            why = _objection(join, peer)
            if why:
                await peer.send(wire.Refused(why))
                return
            admit()
            async with _told_of_the_end(peer):
                if isinstance(join, Join) and join.role == wire.WORKER:
                    await self._with_worker(RemoteWorker(peer, join.name, join.offer, join.has))
                elif isinstance(join, Join):
                    await self._with_client(Member(peer, join.name))
        except (Gone, asyncio.TimeoutError):
            pass
        finally:
            await peer.leave()

    async def end(self) -> None:
        """Tells all members that the scheduler ends."""
        everybody = [*self._dispatch.workers, *self._dispatch.clients]
        telling = [member.peer.send(End()) for member in everybody]
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*telling, return_exceptions=True), _END_SECONDS)
        await asyncio.gather(*(member.peer.leave() for member in everybody))

    async def _with_client(self, client: Member) -> None:
        dispatch = self._dispatch
        dispatch.clients.add(client)
        pulse = asyncio.ensure_future(client.peer.pulse(most=_MOST_SILENT))
        try:
            await client.peer.send(wire.Welcome())
            await client.peer.send(dispatch.machines())
            while not client.leaves:
                message, files = await client.peer.receive(wire.MOST_MODEL)
                if isinstance(message, Submit):
                    dispatch.take(client, message, files)
                elif isinstance(message, Drop):
                    dispatch.drop(client, [message.key])
                elif isinstance(message, Ask):
                    dispatch.post(client.peer.send(Overview(json.dumps(status_of(dispatch).to_json()))))
                elif isinstance(message, End):
                    client.leaves = True
                elif not isinstance(message, Alive):
                    raise Gone("no message of a client")
        finally:
            pulse.cancel()
            dispatch.clients.discard(client)
            dispatch.drop(client, list(dispatch.jobs), lost=not client.leaves)

    async def _with_worker(self, worker: RemoteWorker) -> None:
        dispatch = self._dispatch
        pulse = asyncio.ensure_future(worker.peer.pulse(lambda beats: dispatch.beat(worker, beats), _MOST_SILENT))
        try:
            await worker.peer.send(wire.Welcome())
            dispatch.enter(worker)
            while not worker.leaves:
                message, files = await worker.peer.receive(wire.MOST_ENGINE)
                if isinstance(message, Begun):
                    dispatch.begin(worker, message.key)
                elif isinstance(message, wire.Noted):
                    dispatch.note(worker, message.text)
                elif isinstance(message, Done | Failed):
                    dispatch.finish(worker, message, files)
                elif isinstance(message, Offers):
                    dispatch.offers(worker, message.offer)
                elif isinstance(message, End):
                    worker.leaves = True
                elif not isinstance(message, Alive):
                    raise Gone("no message of a worker")
        finally:
            pulse.cancel()
            dispatch.leave(worker)


@contextlib.asynccontextmanager
async def _told_of_the_end(peer: Peer) -> AsyncIterator[None]:
    """Tells a member that the scheduler ends where it is not known yet: the event loop then cancels all tasks."""
    try:
        yield
    except asyncio.CancelledError:
        with contextlib.suppress(Gone, asyncio.TimeoutError):
            await asyncio.wait_for(peer.send(End()), _END_SECONDS)
        raise


def _objection(join: Any, peer: Peer) -> str:
    """Returns why somebody is not let in; empty where nothing speaks against it."""
    if not isinstance(join, Join):
        raise Gone("it does not say who it is")
    if join.protocol != wire.PROTOCOL:
        return "it has another version of trtconv"
    role = peer.role(join.role)
    if join.role not in (wire.CLIENT, wire.WORKER) or role != join.role:
        return f"the key is for a {role or 'stranger'}, not for a {clean(join.role)[:20]}"
    return ""


async def schedule(address: str, access: FarmAccess, ready: Callable[[str], None]) -> None:
    """Is the scheduler of a farm until it is ended.

    Args:
        address: Where it listens; port 0 is any that is free.
        access: Its keys.
        ready: Called with its address once workers and clients can come.

    Raises:
        InputError: The address is none, keys are missing, or it cannot be listened at.
    """
    where = checked_address(address, access.insecure)
    context = security(where, access.keys, wire.SCHEDULER)
    host, port = host_and_port(where)
    scheduler = Scheduler()
    try:
        listening = listen(host, port)
    except OSError as error:
        raise InputError(f"{where} cannot be listened at: {clean(str(error))}", "Choose another port.") from error
    port = listening[0].getsockname()[1]
    ready(f"{urlsplit(where).scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    try:
        await Door(scheduler.meet, context).open(listening)
    finally:
        await scheduler.end()
