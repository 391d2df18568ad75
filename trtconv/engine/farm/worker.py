"""The ends of a farm that stay: the scheduler, and a worker on each GPU. Both are Dask's own, set up safely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.files import Scratch
from trtconv.core.process import Lost, WorkerBug, call
from trtconv.core.requests.farm import FarmAccess
from trtconv.core.text import clean
from trtconv.engine.farm.addresses import checked_address, dask, is_loopback, security
from trtconv.engine.farm.job import BuildJob
from trtconv.engine.farm.machines import Machine, read_machine
from trtconv.engine.farm.running import JobRunner
from trtconv.engine.farm.store import Store

OFFER = "trtconv"
"""Under this name a worker tells the scheduler what its machine offers."""
_LOOK_SECONDS = 120.0


class Workbench(NamedTuple):
    """What a worker has to do jobs with; it lies on Dask's worker as `workbench`.

    Args:
        runner: Does them.
        store: Folder that the clients see too; None: there is none.
    """

    runner: JobRunner
    store: Store | None


def do_job(text: str, files: dict[str, bytes], stored: bool) -> tuple[memoryview, str]:
    """Is the task that Dask brings here: does a job, and returns the engine and the result as JSON.

    Dask copies nothing of what is a memoryview, where that comes first.

    Args:
        text: The job as JSON.
        files: Its files by their SHA-256; those that are missing are in the store.
        stored: Whether the engine stays in the store, where the worker has one, and is not returned.
    """
    worker = dask().get_worker()
    bench: Workbench = worker.workbench
    key = worker.get_current_task()

    def unwanted() -> bool:
        state = worker.state.tasks.get(key)
        return state is None or state.state == "cancelled"

    def fetch(sha: str) -> bytes:
        if sha in files:
            return files[sha]
        if bench.store is None:
            raise EnvironmentMissing("the worker has no store", "Start it with --store, on a folder that both see.")
        return bench.store.get(sha)

    job = BuildJob.read(text)
    worker.log_event(topic_of(worker.address), key)
    try:
        document, engine = bench.runner.run(job, fetch, unwanted)
    finally:
        worker.log_event(topic_of(worker.address), "")
    document = {**document, "worker": str(worker.name)}
    if bench.store is not None and document["error"] is None:
        keep(bench.store, document, engine)
        engine = b"" if stored else engine
    return memoryview(engine), json.dumps(document)


def topic_of(address: str) -> str:
    """Returns under which name the scheduler keeps the name of the job that a worker is at, empty between jobs."""
    return f"trtconv-at-{address}"


def keep(store: Store, document: dict[str, Any], engine: bytes | memoryview) -> None:
    """Puts a result into a store, the engine first."""
    if engine:
        store.put(engine)
    store.put_result(document["job"], document)


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


async def serve(address: str, access: FarmAccess, machine: Machine, name: str, timing: Path | None, ready: Any) -> None:
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
        EnvironmentMissing: Nobody answers there.
    """
    distributed = dask()
    where = checked_address(address, access.insecure)
    prove = security(where, access.keys, "worker")
    store = None if access.store is None else Store(access.store)
    bench = Workbench(JobRunner(timing), store)
    with Scratch("worker") as scratch:
        worker = distributed.Worker(
            where,
            name=name,
            nthreads=1,
            memory_limit=0,
            resources=machine.resources,
            startup_information={OFFER: lambda _: json.dumps(machine.to_json())},
            security=prove,
            local_directory=str(scratch.path),
            host="127.0.0.1" if is_loopback(where) else None,
            dashboard_address="127.0.0.1:0",
            death_timeout=60,
        )
        worker.workbench = bench
        try:
            async with worker:
                ready(f"{name} offers {offered(machine)} to {where}")
                await worker.finished()
        except (OSError, TimeoutError, RuntimeError) as error:
            raise EnvironmentMissing(
                f"{where}: {clean(str(error))}", "Check the address, the keys and the network."
            ) from error
        finally:
            bench.runner.close()


def offered(machine: Machine) -> str:
    """Returns what a machine offers in words."""
    kinds = " and ".join(f"{info.family}-{info.version}" for info in machine.runtimes)
    return clean(f"{kinds} on {' or '.join(machine.labels) or 'no GPU'}")


async def schedule(address: str, access: FarmAccess, ready: Any) -> None:
    """Is the scheduler of a farm until it is ended.

    Args:
        address: Where it listens; port 0 is any that is free.
        access: Its keys.
        ready: Called with its address once workers and clients can come.

    Raises:
        InputError: The address is none, keys are missing, or it cannot be listened at.
    """
    distributed = dask()
    where = checked_address(address, access.insecure)
    parts = urlsplit(where)
    prove = security(where, access.keys, "scheduler")
    try:
        scheduler = distributed.Scheduler(
            protocol=f"{parts.scheme}://",
            host=parts.hostname,
            port=parts.port,
            security=prove,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
            allowed_failures=0,
        )
        async with scheduler:
            ready(scheduler.address)
            await scheduler.finished()
    except OSError as error:
        raise InputError(f"{where} cannot be listened at: {clean(str(error))}", "Choose another port.") from error
