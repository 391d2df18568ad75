"""The client of a farm: an executor whose processes are the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import itertools
import math
import queue
import time
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from trtconv.core.documents.build import BuildReport
from trtconv.core.errors import EnvironmentMissing, InputError, TrtconvError
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import FarmRequest
from trtconv.core.text import clean
from trtconv.engine.farm.addresses import checked_address, dask, security
from trtconv.engine.farm.job import contents
from trtconv.engine.farm.machines import Choice, Machine, choose, read_machine
from trtconv.engine.farm.planning import could_make, prepare
from trtconv.engine.farm.results import Waiting
from trtconv.engine.farm.store import Store
from trtconv.engine.farm.worker import OFFER, do_job, keep, topic_of
from trtconv.pipeline.batch import Request, Result, failed_run

MOST_BYTES_INSIDE = 64 << 20
"""Files of a job up to this size travel with it; larger ones lie in the store."""
AHEAD, MOST_AHEAD = 2, 8
"""Jobs a worker that are sent before one is done: one that is at work, and the next; more of those that take no longer
than their way does. Memory does not grow with more."""
_WAY_SECONDS = 0.2
_PACED = 8
"""How many of the last jobs tell how long one takes."""
_TOLD_SECONDS = 0.5
"""How long Dask may take to tell of all the jobs that a worker had, once it told of one."""
_LOOK_SECONDS = 2.0
_GRACE_SECONDS = 10.0
"""How long a job may wait for a worker where the last one is gone."""
_CLOSE_SECONDS = 3.0
_FETCH_SECONDS = 60.0
_WRITERS = 4
"""Threads that write engines: most of a write is waiting for the disk."""


@dataclasses.dataclass
class _Killed:
    """What became of a job whose worker died."""

    address: str
    name: str


Outcome = tuple[Any, memoryview] | str | _Killed
"""The result of a job and its engine, or why nothing came back."""


@dataclasses.dataclass
class _Sent:
    """A job on its way, for one request or more that ask the same; the number says in which order they were sent."""

    number: int
    asking: list[tuple[int, Waiting]]
    choice: Choice
    future: Any


class Farm:
    """Builds on the machines of a farm.

    Args:
        request: Where it is, and what is done with the engines.

    Raises:
        InputError: The address is none, or keys are missing.
        EnvironmentMissing: Dask is not installed, or nobody answers.
    """

    def __init__(self, request: FarmRequest) -> None:
        self._then = request.then
        self._store = None if request.store is None else Store(request.store)
        self._address = checked_address(request.on or "", request.insecure)
        prove = security(self._address, request.keys, "client")
        try:
            self._client = dask().Client(
                self._address, security=prove, timeout=5, set_as_default=False, name="trtconv", heartbeat_interval="5s"
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise EnvironmentMissing(
                f"there is no farm at {self._address}: {clean(str(error))}",
                "Start one: trtconv farm scheduler ADDRESS; or check the address and the keys.",
            ) from error
        self._sent: dict[str, _Sent] = {}
        self._numbers = itertools.count()
        self._came: deque[float] = deque([-math.inf], maxlen=_PACED)
        self._done: queue.SimpleQueue[tuple[str, Outcome]] = queue.SimpleQueue()
        self._writers = ThreadPoolExecutor(_WRITERS)
        self._written: dict[Future[Result], int] = {}
        self._missed: dict[str, float] = {}

    def machines(self) -> list[Machine]:
        """Returns the machines that there are, as the scheduler knows them."""
        workers = self._client.scheduler_info(**_everybody(self._client))["workers"]
        found = (read_machine(each.get(OFFER), str(each.get("name"))) for each in workers.values())
        return [machine for machine in found if machine is not None]

    def close(self) -> None:
        """Leaves the farm; jobs that nobody else waits for are ended."""
        with contextlib.suppress(Exception):
            self._client.cancel([sent.future for sent in self._sent.values()])
        self._sent.clear()
        self._writers.shutdown(cancel_futures=True)
        with contextlib.suppress(Exception):
            self._client.close(timeout=_CLOSE_SECONDS)

    def run(self, requests: Sequence[Request]) -> Generator[tuple[int, Result], None, None]:
        """Builds; yields each request's number and result, as they come.

        Raises:
            EnvironmentMissing: Nobody has what a request asks for; nothing is built then.
            InputError: A target does not say which GPU, and there are several.
        """
        builds = [request for request in requests if isinstance(request, BuildRequest)]
        machines = self.machines()
        choices = {request.target: choose(request.target, machines) for request in builds}
        refuse_nobody([request for request in builds if choices[request.target] is None], machines)
        waiting = deque(enumerate(builds))
        looked = time.monotonic()
        try:
            while waiting or self._sent or self._written:
                while waiting and len(self._sent) < self._most_sent(max(1, len(machines))):
                    index, request = waiting.popleft()
                    result = self._start(index, request, choices[request.target])
                    if result is not None:
                        yield index, result
                self._hear()
                yield from self._finish()
                if self._sent and time.monotonic() - looked > _LOOK_SECONDS:
                    machines, looked = self.machines(), time.monotonic()
                    yield from self._give_up(machines)
        finally:
            self.close()

    def _most_sent(self, workers: int) -> int:
        """Returns how many jobs may be on their way: each message of Dask's is then of several small ones."""
        pace = max(1e-6, (time.monotonic() - self._came[0]) / len(self._came))
        return max(AHEAD * workers, min(MOST_AHEAD * workers, int(_WAY_SECONDS / pace)))

    def _start(self, index: int, request: BuildRequest, choice: Choice | None) -> Result | None:
        """Sends a job; returns the result where there is one already."""
        assert choice is not None
        try:
            waiting, kept = prepare(request, choice, self._then)
            if kept is not None:
                return kept
            assert waiting is not None
            found = None if request.force else self._stored(waiting, choice)
            if found is None:
                self._send(index, waiting, choice)
            return found
        except TrtconvError as error:
            return failed_run(request, error)

    def _stored(self, waiting: Waiting, choice: Choice) -> Result | None:
        """Takes what was built before out of the store; what is no good there is built again."""
        document = None if self._store is None else self._store.finished(waiting.job.name, self._then)
        if self._store is None or document is None:
            return None
        with contextlib.suppress(InputError, KeyError, TypeError, AttributeError):
            if not could_make(choice, document["report"], waiting.request):
                return None
            found = waiting.take(document, self._store.get, _worker(document))
            return found if isinstance(found, BuildReport) and not found.exit_code else None
        return None

    def _send(self, index: int, waiting: Waiting, choice: Choice) -> None:
        job = waiting.job
        key = "-".join(("trtconv", job.name, *job.then))
        if key in self._sent:
            self._sent[key].asking.append((index, waiting))
            return
        inside = sum(job.files.values()) <= MOST_BYTES_INSIDE
        if not inside and self._store is None:
            raise InputError(
                f"{waiting.request.model} has more than {MOST_BYTES_INSIDE >> 20} MiB, too much to be sent",
                "Add --store DIR, a folder that the workers see too (worker --store).",
            )
        files = {sha: path.read_bytes() for sha, path in contents(job, waiting.model).items()} if inside else {}
        if not inside and self._store is not None:
            for sha, path in contents(job, waiting.model).items():
                if not self._store.has(sha):
                    self._store.put(path.read_bytes())
        future = self._client.submit(
            do_job,
            _json(job.to_json()),
            files,
            self._store is not None,
            key=key,
            resources={choice.resource: 1},
            retries=0,
            pure=True,
            # In the order in which they are sent.
            fifo_timeout=0,
        )
        self._sent[key] = _Sent(next(self._numbers), [(index, waiting)], choice, future)
        # On Dask's own loop: what it fetches comes while the last one is written.
        future.add_done_callback(lambda done: self._client.loop.add_callback(self._fetch, done))

    async def _fetch(self, future: Any) -> None:
        self._done.put((future.key, await self._outcome(future)))
        # Else scheduler and client keep the model until Python looks for cycles.
        future.release()

    def _hear(self) -> None:
        """Waits a moment for a result, and has it written."""
        with contextlib.suppress(queue.Empty):
            key, outcome = self._done.get(timeout=0.5 if self._sent else 0.0)
            self._came.append(time.monotonic())
            if isinstance(outcome, _Killed):
                self._bury(key, outcome)
            else:
                self._write(key, outcome)

    def _write(self, key: str, outcome: Outcome) -> None:
        sent = self._sent.pop(key, None)
        for index, waiting in sent.asking if sent is not None else ():
            # With the budget of this thread.
            run = contextvars.copy_context().run
            self._written[self._writers.submit(run, self._take, waiting, outcome)] = index

    def _bury(self, key: str, killed: _Killed) -> None:
        """Of the jobs that a dead worker had, sends those again that it had not begun."""
        others, lost, until = [], {key}, time.monotonic() + _TOLD_SECONDS
        with contextlib.suppress(queue.Empty):
            while True:
                each = self._done.get(timeout=max(0.0, until - time.monotonic()))
                if each[1] == killed:
                    lost.add(each[0])
                else:
                    others.append(each)
        for each in others:
            self._done.put(each)
        again = sorted(lost & self._sent.keys(), key=lambda each: self._sent[each].number)
        # Dask moves jobs between workers, so that their order alone does not tell; it may have been another client's.
        begun = self._was_at(killed.address) or "".join(again[:1])
        if begun in again:
            again.remove(begun)
            self._write(begun, f"the worker {killed.name} died while it built this; it is not tried on another one")
        for name in again:
            sent = self._sent.pop(name)
            for index, waiting in sent.asking:
                try:
                    self._send(index, waiting, sent.choice)
                except (TrtconvError, OSError) as error:
                    why = f"it could not be sent again: {clean(str(error))}"
                    self._written[self._writers.submit(waiting.failed, why)] = index

    def _was_at(self, address: str) -> str:
        """Returns which job a worker was at when it was last heard of; empty where nobody knows."""
        with contextlib.suppress(Exception):
            return str(self._client.get_events(topic_of(address))[-1][1])
        return ""

    def _finish(self) -> Generator[tuple[int, Result], None, None]:
        """Yields what was written; waits for it where there is nothing else to do, or too much waits to be written."""
        if not self._sent or len(self._written) > _WRITERS:
            wait(self._written, return_when=FIRST_COMPLETED)
        for done in [each for each in self._written if each.done()]:
            yield self._written.pop(done), done.result()

    async def _outcome(self, future: Any) -> Outcome:
        """Returns the result and the engine that came back, or why nothing did."""
        import json

        distributed = dask()
        try:
            # A worker that has it and does not give it is asked again and again.
            engine, text = await asyncio.wait_for(future.result(), _FETCH_SECONDS)
            return json.loads(text), memoryview(engine).cast("B")
        except distributed.scheduler.KilledWorker as error:
            address = str(getattr(error.last_worker, "address", ""))
            return _Killed(address, clean(str(getattr(error.last_worker, "name", None) or address or "that had it")))
        except Exception as error:
            # Whatever Dask, or a worker that is none of ours, makes of it: it is one job.
            return f"nothing came back from the farm: {clean(f'{type(error).__name__}: {error}')}"

    def _take(self, waiting: Waiting, outcome: Outcome) -> Result:
        if not isinstance(outcome, tuple):
            return waiting.failed(str(outcome), "Build it again; where it happens again, build it by itself.")
        document, engine = outcome
        try:
            result = waiting.take(document, lambda sha: engine or self._out_of_store(sha), _worker(document))
            if self._store is not None and engine and isinstance(result, BuildReport):
                keep(self._store, document, engine)
            return result
        except TrtconvError as error:
            return dataclasses.replace(failed_run(waiting.request, error), worker=_worker(document))

    def _out_of_store(self, sha: str) -> memoryview:
        if self._store is None:
            raise InputError("the engine did not come back", "Build it again.")
        return memoryview(self._store.get(sha))

    def _give_up(self, machines: Sequence[Machine]) -> Generator[tuple[int, Result], None, None]:
        """Fails the jobs that nobody is left for: Dask would have them wait for ever."""
        offered = {name for machine in machines for name in machine.resources}
        now = time.monotonic()
        for key, sent in list(self._sent.items()):
            if sent.choice.resource in offered or sent.future.done():
                self._missed.pop(key, None)
            elif now - self._missed.setdefault(key, now) > _GRACE_SECONDS:
                del self._sent[key]
                self._client.cancel([sent.future])
                for index, waiting in sent.asking:
                    why = f"the last machine for {waiting.request.target or 'auto'} has left the farm"
                    yield index, dataclasses.replace(waiting.failed(why, "Start a worker there."), exit_code=4)


def refuse_nobody(lacking: Sequence[BuildRequest], machines: Sequence[Machine]) -> None:
    """Raises EnvironmentMissing where there are builds that nobody can do; Dask would have them wait for ever."""
    if lacking:
        targets = ", ".join(dict.fromkeys(str(request.target or "auto") for request in lacking))
        there = "; ".join(sorted({_offer(machine) for machine in machines})) or "no worker at all"
        raise EnvironmentMissing(
            f"nobody in the farm can build for {targets}; there is {there}", "Start trtconv worker where that GPU is."
        )


def _offer(machine: Machine) -> str:
    from trtconv.engine.farm.worker import offered

    return offered(machine)


def _worker(document: Any) -> str | None:
    """Returns who did a job, as the result says."""
    name = document.get("worker") if isinstance(document, dict) else None
    return clean(name) if isinstance(name, str) else None


def _json(document: Any) -> str:
    import json

    return json.dumps(document)


def _everybody(client: Any) -> dict[str, int]:
    """Returns what asks newer versions of Dask for all workers, and not for five."""
    import inspect

    return {"n_workers": -1} if "n_workers" in inspect.signature(client.scheduler_info).parameters else {}
