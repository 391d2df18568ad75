"""A worker of a farm: does one job after another for a scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import threading
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trtconv.core.documents.farm import JobResult
from trtconv.core.errors import EnvironmentMissing, InputError, TrtconvError
from trtconv.core.process import Lost, WorkerBug, call
from trtconv.core.requests.farm import FarmAccess
from trtconv.core.text import clean
from trtconv.engine.farm import wire
from trtconv.engine.farm.addresses import checked_address, join, rejoined, security
from trtconv.engine.farm.code import NO_CODE, HeldCode
from trtconv.engine.farm.job import BuildJob
from trtconv.engine.farm.machines import Machine, read_machine
from trtconv.engine.farm.resuming import rest
from trtconv.engine.farm.running import JobRunner
from trtconv.engine.farm.store import Store
from trtconv.engine.farm.wire import Alive, Begun, Done, Drop, End, Failed, Gone, Join, Offers, Peer, Submit

_LOOK_SECONDS = 120.0
_FRESH_SECONDS = 600.0
_LOOK_BEATS = 1000
_ENDED = "The scheduler was lost; start the worker again once it is there."


Say = Callable[[str], None]


class Workbench(NamedTuple):
    """What a worker does jobs with.

    Args:
        runner: Does them.
        store: Folder that the clients see too; None: there is none.
        name: What the worker is called.
    """

    runner: JobRunner
    store: Store | None
    name: str

    def do(self, order: Order) -> tuple[JobResult, bytes]:
        """Does a job; returns the result, and the engine, empty where there is none or it is in the store.

        Raises:
            TrtconvError: The job cannot be read, or is of another version of trtconv.
        """
        files = dict(zip(order.submit.files, order.files, strict=True))

        def fetch(sha: str, size: int) -> bytes:
            if sha in files:
                return files[sha]
            if self.store is None:
                raise EnvironmentMissing("the worker has no store", "Start it with --store, on a folder that both see.")
            return self.store.get(sha, size)

        result, engine = self.runner.run(BuildJob.read(order.submit.job), fetch, order.dropped.is_set)
        result = dataclasses.replace(result, worker=self.name)
        if self.store is not None and result.error is None:
            try:
                keep(self.store, result, engine)
                engine = b"" if order.submit.stored else engine
            except InputError:
                # A store that is full or gone costs nobody the engine: it goes by the line.
                return result, engine
        return result, engine


def own_reason(result: JobResult) -> str:
    """Returns why a job came to nothing, where its machine is why (disk, memory, driver, TensorRT); else empty."""
    own = result.error is not None and result.error.exit_code == EnvironmentMissing.exit_code
    return result.error.message if own and result.error is not None else ""


class Order:
    """A job that came, with its files, and whether it was taken back."""

    def __init__(self, submit: Submit, files: list[bytes]) -> None:
        self.submit, self.files = submit, files
        self.dropped = threading.Event()


def keep(store: Store, result: JobResult, engine: bytes | memoryview) -> None:
    """Puts a result into a store, the engine first."""
    if engine:
        store.put(engine)
    store.put_result(result)


def look(gpu: str | None) -> Machine:
    """Returns what this machine offers.

    Args:
        gpu: What its GPU is to be called; None: as CUDA says it.

    Raises:
        EnvironmentMissing: No TensorRT works here.
    """
    try:
        document = json.dumps(call("trtconv.engine.farm.machines:describe", gpu, _LOOK_SECONDS))
    except (Lost, WorkerBug) as error:
        raise EnvironmentMissing(f"TensorRT breaks down here: {error}", "trtconv doctor says more.") from error
    machine = read_machine(document, "this machine")
    if machine is None or not machine.runtimes:
        raise EnvironmentMissing("no TensorRT works here", "trtconv doctor says why, and what to do.")
    return machine


async def serve(
    address: str,
    access: FarmAccess,
    look: Callable[[], Machine],
    name: str,
    timing: Path | None,
    say: Say,
    code: HeldCode = NO_CODE,
) -> None:
    """Is a worker until it is ended, or the scheduler is and does not come back.

    Args:
        address: The scheduler's.
        access: How it is reached.
        look: Returns what the machine offers.
        name: What the worker is called.
        timing: Folder of timing caches.
        say: Called with a line of text once jobs can come, and for each job.
        code: What jobs may be built with.

    Raises:
        InputError: The address is none, or keys are missing.
        EnvironmentMissing: Nobody answers there, the keys are not those of this farm, or the connection was lost.
    """
    where = checked_address(address, access.insecure)
    context = security(where, access.keys, wire.WORKER)
    bench = Workbench(JobRunner(timing, code), None if access.store is None else Store(access.store), name)
    serving = _Serving(bench, say)

    def joining(offer: str) -> Callable[[], Awaitable[Peer]]:
        return lambda: join(where, context, Join(wire.PROTOCOL, wire.WORKER, name, offer, serving.has))

    peer = await _joined(joining(""), access.reconnect, where)
    try:
        machine = await _introduced(peer, look)
        offer = json.dumps(machine.to_json())
        say(f"{name} offers {offered(machine)} to {where}")
        while True:
            why = await serving.listen(peer)
            say(f"the line to {where} was lost: {why}")
            try:
                peer = await rejoined(joining(offer), access.reconnect)
            except OSError as error:
                if serving.is_over:
                    return
                raise EnvironmentMissing(f"the connection to {where} was lost: {why}", _ENDED) from error
            say(f"{name} is back at {where}")
    finally:
        serving.close()
        await _leave(peer)


async def _leave(peer: Peer) -> None:
    """Tells the scheduler that no more jobs are wanted, and hangs up."""
    with contextlib.suppress(Gone):
        await peer.send(End())
    await peer.leave()


async def _introduced(peer: Peer, look: Callable[[], Machine]) -> Machine:
    """Finds out what the machine offers, and tells the scheduler, which knows meanwhile that this one is coming."""
    # It does not listen yet.
    pulse = asyncio.ensure_future(peer.pulse(most=_LOOK_BEATS))
    try:
        machine: Machine = await _in_thread(look)
        with contextlib.suppress(Gone):
            await peer.send(Offers(json.dumps(machine.to_json())))
        return machine
    finally:
        pulse.cancel()


async def _joined(joining: Callable[[], Awaitable[Peer]], seconds: float, where: str) -> Peer:
    """Joins, and waits for a scheduler that is started after its workers."""
    try:
        return await rejoined(joining, seconds)
    except OSError as error:
        raise EnvironmentMissing(
            f"{where}: {clean(str(error))}", "Check the address, the keys and the network."
        ) from error


class _Outcome(NamedTuple):
    """What became of a job; it may have been lost on its way."""

    answer: Done | Failed
    files: list[bytes]
    since: float

    @property
    def is_fresh(self) -> bool:
        """Whether it is so new that whoever asks for it asks for the second time."""
        return time.monotonic() - self.since < _FRESH_SECONDS


class _Serving:
    """What a worker does for a scheduler, over one line or, where that is lost, several.

    Args:
        bench: Does the jobs.
        say: Called with a line of text for each job.

    Attributes:
        is_over: Whether the scheduler said that it ends.
    """

    def __init__(self, bench: Workbench, say: Say) -> None:
        self._bench, self._say = bench, say
        self._orders: deque[Order] = deque()
        self._came = asyncio.Event()
        self._peer: Peer | None = None
        self._results: deque[_Outcome] = deque(maxlen=wire.AHEAD)
        self._offers: dict[str, _Outcome] = {}
        self._working = asyncio.ensure_future(self._work())
        self.is_over = False

    @property
    def has(self) -> list[str]:
        """Keys of the job that it is at, and of the last ones that it did, where these may not have arrived."""
        at = [order.submit.key for order in self._orders if not order.dropped.is_set()]
        return [*at, *self._offers]

    def close(self) -> None:
        """Ends what it does."""
        for order in self._orders:
            order.dropped.set()
        self._working.cancel()
        self._bench.runner.close()

    async def listen(self, peer: Peer) -> str:
        """Does what the scheduler asks over a line; returns why that was lost."""
        self._peer, self.is_over = peer, False
        pulse = asyncio.ensure_future(peer.pulse())
        try:
            while True:
                await self._hear(peer)
        except Gone as gone:
            return clean(str(gone))
        finally:
            pulse.cancel()
            self._peer, self._offers = None, {entry.answer.key: entry for entry in self._results}
            peer.abort()
            # The one that it is at goes on: the scheduler may come back for it.
            for order in list(self._orders)[1:]:
                order.dropped.set()

    async def _hear(self, peer: Peer) -> None:
        message, files = await peer.receive(wire.MOST_MODEL)
        if isinstance(message, Submit):
            await self._take(peer, Order(message, files))
        elif isinstance(message, Drop):
            for order in self._orders:
                if order.submit.key == message.key:
                    order.dropped.set()
        elif isinstance(message, End):
            self.is_over = True
            raise Gone("the scheduler has ended")
        elif not isinstance(message, Alive):
            raise Gone("it says what no scheduler does")

    async def _take(self, peer: Peer, order: Order) -> None:
        key = order.submit.key
        offer = self._offers.pop(key, None)
        if offer is not None and offer.is_fresh:
            await peer.send(*rest(order.submit, offer.answer, offer.files))
        elif any(other.submit.key == key and not other.dropped.is_set() for other in self._orders):
            # It is at it, from before the line was lost.
            await peer.send(Begun(key, ""))
        else:
            # What it was at and what it did are asked for first.
            self._offers.clear()
            self._orders.append(order)
            self._came.set()

    async def _work(self) -> None:
        while True:
            while not self._orders:
                self._came.clear()
                await self._came.wait()
            order = self._orders[0]
            if not order.dropped.is_set():
                await self._do(order)
            self._orders.popleft()

    async def _do(self, order: Order) -> None:
        key, began = order.submit.key, time.monotonic()
        await self._send(Begun(key, ""))
        try:
            result, engine = await _in_thread(lambda: self._bench.do(order))
        except Exception as error:
            # Whatever is wrong with one job, the next may be done.
            if not isinstance(error, TrtconvError | OSError):
                traceback.print_exc()
            own = isinstance(error, EnvironmentMissing | OSError)
            answer: Failed | Done = Failed(key, f"{type(error).__name__}: {error}", own)
            files, outcome, log = [], f"failed: {error}", ""
        else:
            answer, files = Done(key, json.dumps(result.to_json()), own_reason(result)), [engine]
            outcome = f"failed: {result.error.message}" if result.error else "built" if result.engine else "refused"
            log = f"\n{result.log}" if result.log else ""
        took = f"{time.monotonic() - began:.1f} s"
        if order.dropped.is_set():
            # The same may have been asked for again meanwhile, and this be what an interruption left of it.
            await self._note(f"{order.submit.label}: not wanted any more, after {took}")
            return
        if not answer.own:
            self._results.append(_Outcome(answer, files, time.monotonic()))
        if self._peer is None:
            self._offers = {entry.answer.key: entry for entry in self._results}
        await self._note(f"{order.submit.label}: {outcome}, {took}{log}")
        if answer.own:
            await self._note("set aside for a while: this machine, not the model, is why; other workers get its jobs")
        await self._send(answer, files)

    async def _note(self, text: str) -> None:
        """Writes into the log, here and at the scheduler."""
        for line in text.splitlines():
            self._say(line)
        await self._send(wire.Noted(text))

    async def _send(self, message: wire.Message, files: Sequence[bytes] = ()) -> None:
        """Says something, where somebody hears it."""
        if self._peer is not None:
            with contextlib.suppress(Gone):
                await self._peer.send(message, files)


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Calls a function in a thread that nobody waits for at the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = function()
        except Exception as caught:
            error = caught
        # The loop may have been closed meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, daemon=True).start()
    return await future


def offered(machine: Machine) -> str:
    """Returns what a machine offers in words."""
    kinds = " and ".join(f"{info.family}-{info.version}" for info in machine.runtimes)
    return clean(f"{kinds} on {' or '.join(machine.labels) or 'no GPU'}")
