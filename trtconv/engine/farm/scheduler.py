"""The scheduler of a farm: takes jobs from clients, gives them to workers, and passes on what these made.

It reads no job and no result, keeps nothing on disk, and gives a job whose worker dies to no other one: what took down
the first would take down the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Coroutine, Iterable
from typing import Any
from urllib.parse import urlsplit

from trtconv.core.errors import InputError
from trtconv.core.requests.farm import FarmAccess
from trtconv.core.text import clean
from trtconv.engine.farm import wire
from trtconv.engine.farm.addresses import BUFFER, SECONDS, checked_address, host_and_port, security
from trtconv.engine.farm.machines import read_machine
from trtconv.engine.farm.wire import Begun, Died, Done, Drop, Failed, Gone, Join, Machines, Peer, Submit

AHEAD = 2
"""Jobs that a worker has: one that it is at, and the next."""
_END_SECONDS = 2.0


class _Member:
    """A client."""

    def __init__(self, peer: Peer, name: str) -> None:
        self.peer, self.name = peer, name


class _Worker(_Member):
    """A worker, the resources that it offers, and the jobs that it has, in their order."""

    def __init__(self, peer: Peer, name: str, offer: str) -> None:
        super().__init__(peer, name)
        self.offer = offer
        machine = read_machine(offer, name)
        self.resources = frozenset(machine.resources if machine else ())
        self.line: list[_Job] = []


@dataclasses.dataclass(eq=False)
class _Job:
    """A job, who waits for it, and whether its worker is at it."""

    submit: Submit
    files: list[bytes]
    clients: set[_Member]
    begun: bool = False


class Scheduler:
    """What a farm does with whom."""

    def __init__(self) -> None:
        self._clients: set[_Member] = set()
        self._workers: list[_Worker] = []
        self._jobs: dict[str, _Job] = {}
        self._waiting: dict[str, _Job] = {}
        self._posts: set[asyncio.Task[None]] = set()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talks with a member for as long as it is there."""
        peer = Peer(reader, writer)
        try:
            join, _ = await asyncio.wait_for(peer.receive(most_json=wire.MOST_FIRST), SECONDS)
            why = _objection(join, peer)
            if why:
                await peer.send(wire.Refused(why))
            elif isinstance(join, Join) and join.role == wire.WORKER:
                await self._with_worker(_Worker(peer, join.name, join.offer))
            elif isinstance(join, Join):
                await self._with_client(_Member(peer, join.name))
        except (Gone, asyncio.TimeoutError):
            pass
        finally:
            await peer.leave()

    async def end(self) -> None:
        """Tells all members that the scheduler ends."""
        everybody = [*self._workers, *self._clients]
        telling = [member.peer.send(wire.End()) for member in everybody]
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*telling, return_exceptions=True), _END_SECONDS)
        await asyncio.gather(*(member.peer.leave() for member in everybody))

    async def _with_client(self, client: _Member) -> None:
        self._clients.add(client)
        try:
            await client.peer.send(wire.Welcome())
            await client.peer.send(self._machines())
            while True:
                message, files = await client.peer.receive(wire.MOST_MODEL)
                if isinstance(message, Submit):
                    self._take(client, message, files)
                elif isinstance(message, Drop):
                    self._lose(client, [message.key])
                else:
                    raise Gone("no message of a client")
        finally:
            self._clients.discard(client)
            self._lose(client, list(self._jobs))

    async def _with_worker(self, worker: _Worker) -> None:
        try:
            await worker.peer.send(wire.Welcome())
            self._workers.append(worker)
            self._tell_who_is_there()
            self._assign()
            while True:
                message, files = await worker.peer.receive(wire.MOST_ENGINE)
                if isinstance(message, Begun):
                    for job in worker.line:
                        job.begun = job.begun or job.submit.key == message.key
                elif isinstance(message, Done | Failed):
                    self._finish(worker, message, files)
                else:
                    raise Gone("no message of a worker")
        finally:
            if worker in self._workers:
                self._workers.remove(worker)
                self._bury(worker)

    def _take(self, client: _Member, submit: Submit, files: list[bytes]) -> None:
        known = self._jobs.get(submit.key)
        if known is not None:
            known.clients.add(client)
            return
        self._jobs[submit.key] = self._waiting[submit.key] = _Job(submit, files, {client})
        self._assign()

    def _lose(self, client: _Member, keys: Iterable[str]) -> None:
        """Ends the jobs that a client waited for, and nobody else."""
        for key in keys:
            job = self._jobs.get(key)
            if job is None or client not in job.clients:
                continue
            job.clients.discard(client)
            if not job.clients:
                self._forget(job)
        self._assign()

    def _forget(self, job: _Job) -> None:
        """Takes a job from whoever has it."""
        key = job.submit.key
        del self._jobs[key]
        self._waiting.pop(key, None)
        for worker in self._workers:
            if job in worker.line:
                worker.line.remove(job)
                self._post(worker.peer.send(Drop(key)))

    def _finish(self, worker: _Worker, message: Done | Failed, files: list[bytes]) -> None:
        job = next((job for job in worker.line if job.submit.key == message.key), None)
        # Else it was dropped meanwhile, or was never this worker's.
        if job is not None:
            worker.line.remove(job)
            del self._jobs[message.key]
            for client in job.clients:
                self._post(client.peer.send(message, files))
        self._assign()

    def _bury(self, worker: _Worker) -> None:
        """Tells what a dead worker was at; what it had not begun waits again, in front."""
        again = {}
        for job in worker.line:
            key = job.submit.key
            if not job.begun:
                again[key] = job
                continue
            del self._jobs[key]
            for client in job.clients:
                self._post(client.peer.send(Died(key, worker.name)))
        self._waiting = {**again, **self._waiting}
        self._tell_who_is_there()
        self._assign()

    def _assign(self) -> None:
        """Gives jobs to workers: those that have none come first, then each gets its next one."""
        for depth in range(AHEAD):
            for worker in self._workers:
                if len(worker.line) == depth:
                    self._give(worker)
        for worker in self._workers:
            if not worker.line:
                self._move_to(worker)

    def _give(self, worker: _Worker) -> None:
        fitting = (job for job in self._waiting.values() if job.submit.resource in worker.resources)
        job = next(fitting, None)
        if job is not None:
            del self._waiting[job.submit.key]
            worker.line.append(job)
            self._post(worker.peer.send(job.submit, job.files))

    def _move_to(self, idle: _Worker) -> None:
        """Gives a worker that has nothing to do what waits behind another one's job."""
        for worker in self._workers:
            for job in worker.line[1:]:
                if not job.begun and job.submit.resource in idle.resources:
                    worker.line.remove(job)
                    self._post(worker.peer.send(Drop(job.submit.key)))
                    idle.line.append(job)
                    self._post(idle.peer.send(job.submit, job.files))
                    return

    def _machines(self) -> Machines:
        return Machines([[worker.name, worker.offer] for worker in self._workers])

    def _tell_who_is_there(self) -> None:
        for client in self._clients:
            self._post(client.peer.send(self._machines()))

    def _post(self, sending: Coroutine[Any, Any, None]) -> None:
        """Sends without waiting: a slow member holds up nobody else."""

        async def send() -> None:
            # Whoever is gone is taken leave of where it is listened to.
            with contextlib.suppress(Gone):
                await sending

        task = asyncio.ensure_future(send())
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)


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
    limits = {} if context is None else {"ssl_handshake_timeout": SECONDS}
    try:
        server = await asyncio.start_server(scheduler.meet, host, port, ssl=context, limit=BUFFER, **limits)
    except OSError as error:
        raise InputError(f"{where} cannot be listened at: {clean(str(error))}", "Choose another port.") from error
    port = server.sockets[0].getsockname()[1]
    ready(f"{urlsplit(where).scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    try:
        await server.serve_forever()
    finally:
        server.close()
        await scheduler.end()
