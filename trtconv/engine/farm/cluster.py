"""The client of a farm: an executor whose processes are the farm's workers."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import json
import math
import queue
import time
from collections import deque
from collections.abc import Collection, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from trtconv.core.decode import Fault, decoded, json_of
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.farm import JobResult, worker_of
from trtconv.core.errors import EnvironmentMissing, InputError, TrtconvError
from trtconv.core.reading import read_plain
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import FarmRequest
from trtconv.core.target import Target
from trtconv.core.text import clean
from trtconv.engine.farm.connection import Connection, Rejoined
from trtconv.engine.farm.job import contents
from trtconv.engine.farm.machines import Choice, Machine, choose
from trtconv.engine.farm.planning import could_make, prepare
from trtconv.engine.farm.results import Waiting
from trtconv.engine.farm.store import Store
from trtconv.engine.farm.watching import JobWatch
from trtconv.engine.farm.wire import Begun, Died, Done, Drop, Failed, Submit
from trtconv.engine.farm.worker import keep, offered
from trtconv.pipeline.batch import Request, Result, failed_run

MOST_BYTES_INSIDE = 64 << 20
"""Files of a job up to this size travel with it; larger ones lie in the store."""
AHEAD, MOST_AHEAD = 2, 8
"""Jobs a worker that are sent before one is done: one that is at work, and the next; more of those that take no longer
than their way does. Memory does not grow with more."""
_WAY_SECONDS = 0.2
_PACED = 8
"""How many of the last jobs tell how long one takes."""
_LOOK_SECONDS = 2.0
_STEP_SECONDS = 0.1
_GRACE_SECONDS = 10.0
"""How long a job may wait for a worker where the last one is gone."""
_PATIENCE_SECONDS, _STARTING_SECONDS = 3.0, 120.0
"""How long a worker is waited for that may have been started together with the client, and one that says it starts."""
_WRITERS = 4
"""Threads that write engines: most of a write is waiting for the disk."""


Outcome = tuple[Any, memoryview] | str | TrtconvError
"""The result of a job and its engine, or why nothing came back: the farm's word, or an error of a class."""


class _EngineMissing(InputError):
    """A build was done, and its engine is not where it should be."""


@dataclasses.dataclass
class _Task:
    """A job on its way, for one request or more that ask the same.

    Attributes:
        files: Those that travel with it.
        begun: Since when a worker is at it, on the monotonic clock.
        tries: How often it was sent again, because its worker was lost or its engine did not come back.
    """

    asking: list[tuple[int, Waiting]]
    choice: Choice
    submit: Submit
    files: list[Path]
    begun: float = math.inf
    worker: str = ""
    tries: int = 0


class Farm:
    """Builds on the machines of a farm.

    Args:
        request: Where it is, and what is done with the engines.
        watch: Hears what becomes of jobs before they are done.

    Raises:
        InputError: The address is none, or keys are missing.
        EnvironmentMissing: Nobody answers, or the keys are not those of this farm.
    """

    def __init__(self, request: FarmRequest, watch: JobWatch | None = None) -> None:
        self._watch = watch or JobWatch()
        self._then, self._retries = request.then, request.retries
        self._job_seconds = request.job_timeout or math.inf
        self._store = None if request.store is None else Store(request.store)
        self._connection = Connection(request)
        self._tasks: dict[str, _Task] = {}
        self._came: deque[float] = deque([-math.inf], maxlen=_PACED)
        self._writers = ThreadPoolExecutor(_WRITERS)
        self._writes: dict[Future[Result], tuple[int, Waiting, _Task]] = {}
        self._missed: dict[str, float] = {}
        self._began = time.monotonic()

    def machines(self, targets: Collection[Target | None] = ()) -> list[Machine]:
        """Returns the machines that there are, as the scheduler knows them.

        Args:
            targets: Waits a moment for whoever can build for these, and for workers that are starting.
        """
        machines = self._connection.machines()
        while any(_placed(target, machines) is None for target in targets) and self._may_come():
            time.sleep(_STEP_SECONDS)
            machines = self._connection.there
        return machines

    def _may_come(self) -> bool:
        """Whether somebody may still come who was started before this client, or together with it."""
        if self._connection.is_lost:
            return False
        patience = _STARTING_SECONDS if self._connection.starting else _PATIENCE_SECONDS
        return time.monotonic() - self._began < patience

    def close(self) -> None:
        """Leaves the farm; jobs that nobody else waits for are ended."""
        self._tasks.clear()
        self._writers.shutdown(cancel_futures=True)
        self._connection.close()

    def run(self, requests: Sequence[Request]) -> Generator[tuple[int, Result], None, None]:
        """Builds what somebody there can; yields each request's number and result, as they come."""
        builds = [request for request in requests if isinstance(request, BuildRequest)]
        machines = self.machines()
        waiting = deque(enumerate(builds))
        unplaced: dict[int, BuildRequest] = {}
        looked = time.monotonic()
        try:
            while waiting or unplaced or self._tasks or self._writes:
                while waiting and len(self._tasks) < self._most_sent(max(1, len(machines))):
                    index, request = waiting.popleft()
                    choice = _placed(request.target, machines)
                    if isinstance(choice, Choice):
                        result = self._start(index, request, choice)
                        if result is not None:
                            yield index, result
                    else:
                        unplaced[index] = request
                        self._watch.unplaced(index)
                self._hear(bool(unplaced))
                yield from self._finish()
                if self._connection.there is not machines:
                    machines = self._connection.there
                    for index in unplaced:
                        self._watch.waits(index)
                    waiting.extend(unplaced.items())
                    unplaced.clear()
                self._end_overdue()
                if self._tasks and time.monotonic() - looked > _LOOK_SECONDS:
                    looked = time.monotonic()
                    yield from self._give_up(machines)
                if unplaced and not (waiting or self._tasks or self._may_come()):
                    yield from (
                        (index, failed_run(request, _why_not(request, machines))) for index, request in unplaced.items()
                    )
                    unplaced.clear()
        finally:
            self.close()

    def _most_sent(self, workers: int) -> int:
        """Returns how many jobs may be on their way: more of small ones, which are done before the next can come."""
        pace = max(1e-6, (time.monotonic() - self._came[0]) / len(self._came))
        return max(AHEAD * workers, min(MOST_AHEAD * workers, int(_WAY_SECONDS / pace)))

    def _start(self, index: int, request: BuildRequest, choice: Choice) -> Result | None:
        """Sends a job; returns the result where there is one already."""
        try:
            waiting, report = prepare(request, choice, self._then)
            if report is not None:
                return report
            assert waiting is not None
            result = None if request.force else self._stored(waiting, choice)
            if result is None:
                self._send(index, waiting, choice)
            return result
        except TrtconvError as error:
            return failed_run(request, error)
        except OSError as error:
            why = f"{request.model} cannot be read: {error.strerror or error}"
            return failed_run(request, InputError(why, "Leave the model where it is until it is built."))

    def _stored(self, waiting: Waiting, choice: Choice) -> Result | None:
        """Takes what was built before out of the store; what is no good there is built again."""
        result = None if self._store is None else self._store.finished(waiting.job.name, self._then)
        if self._store is None or result is None:
            return None
        with contextlib.suppress(InputError, Fault):
            if not could_make(choice, decoded(BuildReport, result.report), waiting.request):
                return None
            worker = f"{worker_of(result.to_json()) or 'a machine'}, out of the store"
            outcome = waiting.take(self._store.result(result.job), self._store.get, worker)
            self._store.touch(result)
            return outcome if isinstance(outcome, BuildReport) and not outcome.exit_code else None
        return None

    def _send(self, index: int, waiting: Waiting, choice: Choice) -> None:
        if self._connection.is_lost:
            raise self._connection.lost()
        job = waiting.job
        inside = sum(job.files.values()) <= MOST_BYTES_INSIDE
        if not inside and self._store is None:
            raise InputError(
                f"{waiting.request.model} has more than {MOST_BYTES_INSIDE >> 20} MiB, too much to be sent",
                "Add --store DIR, a folder that the workers see too (worker --store).",
            )
        lying = contents(job, waiting.request.model)
        text = json.dumps(job.to_json())
        label = f"{waiting.request.model.name} for {waiting.request.target or 'auto'}"
        submit = Submit(choice.resource, text, self._store is not None, list(lying) if inside else [], label)
        if submit.key in self._tasks:
            self._tasks[submit.key].asking.append((index, waiting))
            return
        if not inside and self._store is not None:
            for sha, path in lying.items():
                self._store.put_file(sha, path)
        self._tasks[submit.key] = _Task([(index, waiting)], choice, submit, list(lying.values()) if inside else [])
        self._send_again(self._tasks[submit.key])

    def _send_again(self, task: _Task) -> None:
        task.begun, task.worker = math.inf, ""
        self._connection.send(task.submit, [read_plain(path) for path in task.files])

    def _hear(self, more: bool) -> None:
        """Waits a moment for a result, and has it written; `more`: also where none is on its way."""
        with contextlib.suppress(queue.Empty):
            answer = self._connection.answers.get(timeout=0.5 if self._tasks else _STEP_SECONDS * more)
            if answer is None:
                self._lose_all()
            elif isinstance(answer, Rejoined):
                for key in list(self._tasks):
                    self._try_again(key)
            elif isinstance(answer[0], Begun):
                self._begin(answer[0])
            else:
                self._came.append(time.monotonic())
                self._hear_of(answer[0], answer[1])

    def _begin(self, message: Begun) -> None:
        task = self._tasks.get(message.key)
        if task is not None:
            task.begun, task.worker = time.monotonic(), clean(message.worker)
            for index, _ in task.asking:
                self._watch.begun(index, task.worker)

    def _hear_of(self, answer: Done | Failed | Died, engine: bytes) -> None:
        task = self._tasks.get(answer.key)
        if isinstance(answer, Died) and task is not None and task.tries < self._retries:
            task.tries += 1
            self._try_again(answer.key)
        else:
            self._write(answer.key, _outcome(answer, engine))

    def _try_again(self, key: str) -> None:
        """Sends a job again; its model may not be there any more."""
        for index, _ in self._tasks[key].asking:
            self._watch.waits(index)
        try:
            self._send_again(self._tasks[key])
        except OSError as error:
            self._write(key, InputError(f"the model cannot be read again: {error.strerror or error}"))

    def _end_overdue(self) -> None:
        """Ends the jobs that take longer than they may, also where the worker itself does not do anything any more."""
        now = time.monotonic()
        for key, task in list(self._tasks.items()):
            if now - task.begun > self._job_seconds:
                self._connection.send(Drop(key))
                self._write(key, f"it took longer than {self._job_seconds:g} s (--job-timeout) on {task.worker}")

    def _lose_all(self) -> None:
        """Fails what nobody will answer any more."""
        outcome = self._connection.lost()
        while self._tasks:
            self._write(next(iter(self._tasks)), outcome)

    def _write(self, key: str, outcome: Outcome) -> None:
        task = self._tasks.pop(key, None)
        if task is None:
            return
        for index, waiting in task.asking:
            # With the budget of this thread.
            run = contextvars.copy_context().run
            self._writes[self._writers.submit(run, self._take, waiting, outcome)] = index, waiting, task

    def _finish(self) -> Generator[tuple[int, Result], None, None]:
        """Yields what was written; waits for it where there is nothing else to do, or too much waits to be written."""
        if not self._tasks or len(self._writes) > _WRITERS:
            wait(self._writes, return_when=FIRST_COMPLETED)
        for write in [future for future in self._writes if future.done()]:
            index, waiting, task = self._writes.pop(write)
            error = write.exception()
            if not isinstance(error, _EngineMissing):
                yield index, write.result()
            elif task.tries < self._retries:
                self._send_by_line(index, waiting, task)
            else:
                yield index, failed_run(waiting.request, error)

    def _send_by_line(self, index: int, waiting: Waiting, task: _Task) -> None:
        """Sends a job again whose engine is not in the store; it is to come by the line now."""
        submit = dataclasses.replace(task.submit, stored=False)
        again = self._tasks.setdefault(submit.key, _Task([], task.choice, submit, task.files, tries=task.tries + 1))
        again.asking.append((index, waiting))
        self._try_again(submit.key)

    def _take(self, waiting: Waiting, outcome: Outcome) -> Result:
        if isinstance(outcome, TrtconvError):
            return failed_run(waiting.request, outcome)
        if isinstance(outcome, str):
            return waiting.failed(outcome, "Build it again; where it happens again, build it by itself.")
        document, engine = outcome
        try:
            result = waiting.take(
                document, lambda sha, size: engine or self._out_of_store(sha, size), worker_of(document)
            )
            if self._store is not None and engine and isinstance(result, BuildReport):
                # A store that is full or gone costs nobody the engine, which is where it should be already.
                with contextlib.suppress(InputError):
                    keep(self._store, decoded(JobResult, document), engine)
            return result
        except _EngineMissing:
            raise
        except TrtconvError as error:
            return dataclasses.replace(failed_run(waiting.request, error), worker=worker_of(document))

    def _out_of_store(self, sha: str, size: int) -> memoryview:
        if self._store is None:
            raise _EngineMissing("the engine did not come back", "Build it again.")
        try:
            return memoryview(self._store.get(sha, size))
        except InputError as error:
            raise _EngineMissing(
                f"the engine did not come back: {error}", "Build it again; --retries 1 does."
            ) from error

    def _give_up(self, machines: Sequence[Machine]) -> Generator[tuple[int, Result], None, None]:
        """Fails the jobs that nobody is left for, who would wait for ever."""
        offered = {name for machine in machines for name in machine.resources}
        now = time.monotonic()
        for key, task in list(self._tasks.items()):
            if task.choice.resource in offered:
                self._missed.pop(key, None)
            elif now - self._missed.setdefault(key, now) > _GRACE_SECONDS:
                del self._tasks[key]
                self._connection.send(Drop(key))
                for index, waiting in task.asking:
                    why = f"the last machine for {waiting.request.target or 'auto'} has left the farm"
                    yield index, dataclasses.replace(waiting.failed(why, "Start a worker there."), exit_code=4)


def _outcome(answer: Done | Failed | Died, engine: bytes) -> Outcome:
    """Returns the result and the engine that came back, or why nothing did."""
    if isinstance(answer, Died):
        return f"the worker {clean(answer.worker)} died while it built this; it is not tried on another one"
    if isinstance(answer, Failed):
        if answer.own:
            return EnvironmentMissing(
                f"whoever could build this failed for a reason of its own: {clean(answer.why)}", "See the worker's log."
            )
        return f"nothing came back from the farm: {clean(answer.why)}"
    try:
        return json_of(answer.result), memoryview(engine)
    except Fault as fault:
        return f"nothing came back from the farm: the result cannot be read: {clean(str(fault))}"


def _placed(target: Target | None, machines: Sequence[Machine]) -> Choice | TrtconvError | None:
    """Returns who can build for a target, or why that cannot be told."""
    try:
        return choose(target, machines)
    except TrtconvError as error:
        return error


def _why_not(request: BuildRequest, machines: Sequence[Machine]) -> TrtconvError:
    """Returns why nobody there can do a build."""
    why = _placed(request.target, machines)
    if isinstance(why, TrtconvError):
        return why
    there = "; ".join(sorted({offered(machine) for machine in machines})) or "no worker at all"
    return EnvironmentMissing(
        f"nobody in the farm can build for {request.target or 'auto'}; there is {there}",
        "Start trtconv worker where that GPU is.",
    )
