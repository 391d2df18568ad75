"""A worker of a farm: does one job after another for a scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import threading
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from trtconv.core.documents.farm import JobResult
from trtconv.core.errors import EnvironmentMissing, TrtconvError
from trtconv.core.process import Lost, WorkerBug, call
from trtconv.core.requests.farm import FarmAccess
from trtconv.core.text import clean
from trtconv.engine.farm import wire
from trtconv.engine.farm.addresses import checked_address, join, security
from trtconv.engine.farm.job import BuildJob
from trtconv.engine.farm.machines import Machine, read_machine
from trtconv.engine.farm.running import JobRunner
from trtconv.engine.farm.store import Store
from trtconv.engine.farm.wire import Begun, Done, Drop, Failed, Gone, Join, Peer, Submit

_LOOK_SECONDS = 120.0
_WAIT_SECONDS = 60.0
"""How long a worker waits for a scheduler that is not there yet."""
_RETRY_SECONDS = 0.5
_ENDED = "The scheduler was lost; start the worker again once it is there."


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

    def do(self, order: Order) -> tuple[str, bytes]:
        """Does a job; returns the result as JSON, and the engine, empty where there is none or it is in the store.

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
            keep(self.store, result, engine)
            engine = b"" if order.submit.stored else engine
        return json.dumps(result.to_json()), engine


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
        found = json.dumps(call("trtconv.engine.farm.machines:describe", gpu, _LOOK_SECONDS))
    except (Lost, WorkerBug) as error:
        raise EnvironmentMissing(f"TensorRT breaks down here: {error}", "trtconv doctor says more.") from error
    machine = read_machine(found, "this machine")
    if machine is None or not machine.runtimes:
        raise EnvironmentMissing("no TensorRT works here", "trtconv doctor says why, and what to do.")
    return machine


async def serve(
    address: str, access: FarmAccess, machine: Machine, name: str, timing: Path | None, ready: Callable[[str], None]
) -> None:
    """Is a worker until it is ended, or the scheduler is.

    Args:
        address: The scheduler's.
        access: How it is reached.
        machine: What the machine offers.
        name: What the worker is called.
        timing: Folder of timing caches.
        ready: Called with a line of text once jobs can come.

    Raises:
        InputError: The address is none, or keys are missing.
        EnvironmentMissing: Nobody answers there, the keys are not those of this farm, or the connection was lost.
    """
    where = checked_address(address, access.insecure)
    context = security(where, access.keys, wire.WORKER)
    said = Join(wire.PROTOCOL, wire.WORKER, name, json.dumps(machine.to_json()))
    peer = await _joined(lambda: join(where, context, said), where)
    bench = Workbench(JobRunner(timing), None if access.store is None else Store(access.store), name)
    ready(f"{name} offers {offered(machine)} to {where}")
    try:
        await _Serving(peer, bench).run()
    except Gone as gone:
        raise EnvironmentMissing(f"the connection to {where} was lost: {clean(str(gone))}", _ENDED) from gone
    finally:
        bench.runner.close()
        await peer.leave()


async def _joined(attempt: Callable[[], Any], where: str) -> Peer:
    """Joins, and waits for a scheduler that is started after its workers."""
    until = asyncio.get_running_loop().time() + _WAIT_SECONDS
    while True:
        try:
            peer: Peer = await attempt()
            return peer
        except OSError as error:
            if asyncio.get_running_loop().time() > until:
                raise EnvironmentMissing(
                    f"{where}: {clean(str(error))}", "Check the address, the keys and the network."
                ) from error
        await asyncio.sleep(_RETRY_SECONDS)


class _Serving:
    """What a worker does while it is connected.

    Args:
        peer: The scheduler.
        bench: Does the jobs.
    """

    def __init__(self, peer: Peer, bench: Workbench) -> None:
        self._peer, self._bench = peer, bench
        self._orders: deque[Order] = deque()
        self._came = asyncio.Event()

    async def run(self) -> None:
        """Does what the scheduler asks, until it ends.

        Raises:
            Gone: It is not there any more.
        """
        working = asyncio.ensure_future(self._work())
        listening = asyncio.ensure_future(self._listen())
        try:
            done, _ = await asyncio.wait({working, listening}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for order in self._orders:
                order.dropped.set()
            for task in (working, listening):
                task.cancel()

    async def _listen(self) -> None:
        while True:
            message, files = await self._peer.receive(wire.MOST_MODEL)
            if isinstance(message, Submit):
                self._orders.append(Order(message, files))
                self._came.set()
            elif isinstance(message, Drop):
                for order in self._orders:
                    if order.submit.key == message.key:
                        order.dropped.set()
            elif isinstance(message, wire.End):
                return
            else:
                raise Gone("it says what no scheduler does")

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
        key = order.submit.key
        await self._peer.send(Begun(key))
        try:
            text, engine = await _in_thread(lambda: self._bench.do(order))
        except Exception as error:
            # Whatever is wrong with one job, the next may be done.
            if not isinstance(error, TrtconvError | OSError):
                traceback.print_exc()
            answer: Failed | Done = Failed(key, f"{type(error).__name__}: {error}")
            files = []
        else:
            answer, files = Done(key, text), [engine]
        # The same may have been asked for again meanwhile, and this be what an interruption left of it.
        if not order.dropped.is_set():
            await self._peer.send(answer, files)


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Calls a function in a thread that nobody waits for at the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

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
    return await done


def offered(machine: Machine) -> str:
    """Returns what a machine offers in words."""
    kinds = " and ".join(f"{info.family}-{info.version}" for info in machine.runtimes)
    return clean(f"{kinds} on {' or '.join(machine.labels) or 'no GPU'}")
