"""Which worker of a farm gets which job, and what becomes of the jobs of one that is lost, silent or unwell."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Coroutine, Iterable
from itertools import chain
from typing import Any

from trtconv.core.text import clean
from trtconv.engine.farm.machines import read_machine
from trtconv.engine.farm.resuming import Beginning, beginning, rest, whole
from trtconv.engine.farm.wire import AHEAD, Begun, Died, Done, Drop, Failed, Gone, Machines, Peer, Submit

BACK_SECONDS = 5.0
"""How long a member whose line is lost may take to come back, before its jobs are given up."""
ANSWER_SECONDS = 60.0
"""How long an answer waits for a client whose line is lost."""
ASIDE_SECONDS = 60.0
"""How long a worker that failed for a reason of its own gets no job that another one can do."""
BEGIN_SECONDS, BYTES_A_SECOND = 120.0, 100_000
"""How long a worker may take to say that it is at its first job, and how many bytes a slow line carries to it."""
MOST_JOBS, MOST_BYTES = 10_000, 16 << 30
"""How many jobs may be there at once, and how many bytes of models with them."""
MOST_NOTES, MOST_NOTE = 500, 4000
"""How much of the workers' logs is kept: lines, and characters of what is said at once."""
MOST_QUIET = 3
"""Beats after which a worker that is not heard of gets no more jobs."""

Answer = tuple[Done | Failed, list[bytes]]


class Member:
    """A client."""

    def __init__(self, peer: Peer, name: str) -> None:
        self.peer, self.name = peer, name
        self.leaves = False


class RemoteWorker(Member):
    """A worker, what it offers, and the jobs that it has, in their order.

    Attributes:
        has: Keys of the jobs that it has begun or finished on an earlier line.
        beats: For how many beats nothing was heard of it.
        why: Why it was set aside last, for the moment until `aside`.
        first: The job that it is to begin or is at, and what ends its time to begin.
    """

    def __init__(self, peer: Peer, name: str, offer: str, has: Iterable[str] = ()) -> None:
        super().__init__(peer, name)
        self.has = set(has)
        self.line: list[QueuedJob] = []
        self.first: tuple[QueuedJob, asyncio.TimerHandle] | None = None
        self.beats, self.count, self.failed = 0, 0, 0
        self.aside, self.why = 0.0, ""
        self.look(offer)

    def look(self, offer: str) -> None:
        """Takes in what it offers."""
        self.offer = offer
        self.machine = read_machine(offer, self.name)
        self.resources = frozenset(self.machine.resources if self.machine else ())

    @property
    def is_aside(self) -> bool:
        """Whether it failed a moment ago for a reason of its own."""
        return time.monotonic() < self.aside

    @property
    def is_silent(self) -> bool:
        """Whether nothing is heard of it, though its line is there."""
        return self.beats >= MOST_QUIET

    def can(self, job: QueuedJob) -> bool:
        """Whether it may do a job, as far as anybody knows."""
        return job.submit.resource in self.resources and not self.is_silent and self.name not in job.refused


@dataclasses.dataclass(eq=False)
class QueuedJob:
    """A job.

    Attributes:
        clients: Who waits for it.
        begun: Since when its worker is at it, on the monotonic clock; None: it is not.
        refused: Workers that could not do it for reasons of their own.
        answer: What became of it, until all who wait for it have it.
        beginning: What came of the engine over a line that was lost.
        since: When it came.
    """

    submit: Submit
    files: list[bytes]
    clients: set[Member]
    begun: float | None = None
    refused: set[str] = dataclasses.field(default_factory=set)
    answer: Answer | None = None
    beginning: Beginning | None = None
    since: float = dataclasses.field(default_factory=time.monotonic)


class Dispatch:
    """The jobs of a farm and those who do them. Nothing here waits for anybody."""

    def __init__(self) -> None:
        self.clients: set[Member] = set()
        self.workers: list[RemoteWorker] = []
        self.jobs: dict[str, QueuedJob] = {}
        self.waiting: dict[str, QueuedJob] = {}
        self.log: deque[str] = deque(maxlen=MOST_NOTES)
        self._orphans: dict[str, QueuedJob] = {}
        self._posts: set[asyncio.Task[None]] = set()

    def enter(self, worker: RemoteWorker) -> None:
        """Lets a worker have jobs."""
        self.workers.append(worker)
        self._tell_who_is_there()
        self._assign()

    def offers(self, worker: RemoteWorker, offer: str) -> None:
        """Hears what a worker offers that has looked at its machine."""
        worker.look(offer)
        self._tell_who_is_there()
        self._assign()

    def take(self, client: Member, submit: Submit, files: list[bytes]) -> None:
        """Takes a job from a client, or remembers that one more waits for it."""
        job = self.jobs.get(submit.key)
        if job is None and self._is_full(files):
            why = f"the scheduler has no room for more than {MOST_JOBS} jobs and {MOST_BYTES >> 30} GiB of models"
            self.post(client.peer.send(Failed(submit.key, why, own=True)))
            return
        if job is None:
            self.jobs[submit.key] = self.waiting[submit.key] = QueuedJob(submit, files, {client})
            self._assign()
            return
        job.clients.add(client)
        if job.answer is not None:
            self.post(client.peer.send(*rest(submit, *job.answer)))
            return
        for worker in self.workers:
            if job in worker.line and job.begun is not None:
                self.post(client.peer.send(Begun(submit.key, worker.name)))

    def _is_full(self, files: list[bytes]) -> bool:
        """Whether there is no room for one more job."""
        blobs = chain(files, *(job.files for job in self.jobs.values()))
        return len(self.jobs) >= MOST_JOBS or sum(map(len, blobs)) > MOST_BYTES

    def drop(self, client: Member, keys: Iterable[str], *, lost: bool = False) -> None:
        """Ends the jobs that a client waited for, and nobody else.

        Args:
            lost: Whether its line was: it may come back in a moment.
        """
        for key in keys:
            job = self.jobs.get(key)
            if job is None or client not in job.clients:
                continue
            job.clients.discard(client)
            if not job.clients:
                if lost:
                    seconds = BACK_SECONDS if job.answer is None else ANSWER_SECONDS
                    asyncio.get_running_loop().call_later(seconds, self._forget_unwanted, job)
                else:
                    self._forget_unwanted(job)
        self._assign()

    def _forget_unwanted(self, job: QueuedJob) -> None:
        """Takes a job that nobody waits for from whoever has it."""
        key = job.submit.key
        if job.clients or self.jobs.get(key) is not job:
            return
        del self.jobs[key]
        self.waiting.pop(key, None)
        self._orphans.pop(key, None)
        for worker in self.workers:
            if job in worker.line:
                worker.line.remove(job)
                self.post(worker.peer.send(Drop(key)))
        self._assign()

    def note(self, worker: RemoteWorker, text: str) -> None:
        """Keeps what a worker wrote into its log."""
        lines = map(clean, text[:MOST_NOTE].splitlines())
        head = f"{time.strftime('%H:%M:%S')} {clean(worker.name)}: "
        self.log.extend(f"{'  ' if number else head}{line}" for number, line in enumerate(lines))

    def begin(self, worker: RemoteWorker, key: str) -> None:
        """Hears that a worker is at a job."""
        for job in worker.line:
            if job.submit.key == key:
                job.begun = job.begun or time.monotonic()
                for client in job.clients:
                    self.post(client.peer.send(Begun(key, worker.name)))

    def finish(self, worker: RemoteWorker, message: Done | Failed, files: list[bytes]) -> None:
        """Passes on what a worker made of a job, or has another one try."""
        job = next((job for job in worker.line if job.submit.key == message.key), None)
        # Else it was dropped meanwhile, or was never this worker's.
        if job is not None:
            if isinstance(message, Done) and message.skipped:
                files = [whole(message, file, job.beginning) for file in files]
                message = dataclasses.replace(message, skipped=0)
            worker.line.remove(job)
            worker.failed += bool(message.own)
            worker.count += not message.own
            if message.own:
                self._set_aside(worker, message.why if isinstance(message, Failed) else message.own)
                job.refused.add(worker.name)
            if message.own and any(other.can(job) for other in self.workers):
                self._wait_again([job])
            else:
                self._answer(job, message, files)
        self._assign()

    def _set_aside(self, worker: RemoteWorker, why: str) -> None:
        worker.why = clean(why)
        worker.aside = time.monotonic() + ASIDE_SECONDS
        asyncio.get_running_loop().call_later(ASIDE_SECONDS, self._assign)

    def _answer(self, job: QueuedJob, message: Done | Failed, files: list[bytes]) -> None:
        # Its files are not needed any more, its answer until all have it.
        job.answer, job.files = (message, files), []
        for client in job.clients:
            self.post(client.peer.send(message, files))

    def leave(self, worker: RemoteWorker) -> None:
        """Hears that a worker is not there any more; what it was at waits for it a moment, if it did not say so."""
        if worker not in self.workers:
            return
        self.workers.remove(worker)
        self._keep_beginning(worker)
        running = [job for job in worker.line if job.begun is not None and not worker.leaves]
        self._wait_again([job for job in worker.line if job not in running])
        for job in running:
            self._orphans[job.submit.key] = job
            asyncio.get_running_loop().call_later(BACK_SECONDS, self._bury, job, worker.name)
        self._tell_who_is_there()
        self._assign()

    def _keep_beginning(self, worker: RemoteWorker) -> None:
        """Remembers what came of an engine before the line to its worker was lost."""
        cut = worker.peer.cut
        for job in worker.line if cut is not None else ():
            if cut is not None and job.submit.key == cut[0].key:
                with contextlib.suppress(Gone):
                    job.beginning = beginning(cut, job.beginning)

    def _bury(self, job: QueuedJob, worker: str) -> None:
        """Tells that a worker died at a job, if it has not come back."""
        key = job.submit.key
        if self._orphans.get(key) is job:
            del self._orphans[key], self.jobs[key]
            for client in job.clients:
                self.post(client.peer.send(Died(key, worker)))

    def beat(self, worker: RemoteWorker, beats: int) -> None:
        """Hears for how many beats nothing was heard of a worker; what it has not begun goes to others."""
        was, worker.beats = worker.is_silent, beats
        if worker.is_silent and not was:
            stuck = [job for job in worker.line if job.begun is None]
            for job in stuck:
                worker.line.remove(job)
                self.post(worker.peer.send(Drop(job.submit.key)))
            self._wait_again(stuck)
        if was != worker.is_silent:
            self._assign()

    def _wait_again(self, jobs: Iterable[QueuedJob]) -> None:
        """Puts jobs in front."""
        again = {job.submit.key: job for job in jobs}
        for job in again.values():
            job.begun = None
        self.waiting = {**again, **self.waiting}

    def _assign(self) -> None:
        """Gives jobs to workers: those that have none come first, then each gets its next one."""
        for worker in self.workers:
            self._give_back(worker)
        for depth in range(AHEAD):
            for worker in self.workers:
                if len(worker.line) == depth:
                    self._give_next(worker)
        for worker in self.workers:
            if not worker.line:
                self._move_to(worker)
        for worker in self.workers:
            self._time_first(worker)

    def _time_first(self, worker: RemoteWorker) -> None:
        """Gives a worker a time in which to begin the first of its jobs."""
        job = worker.line[0] if worker.line else None
        if worker.first is not None and worker.first[0] is not job:
            worker.first[1].cancel()
            worker.first = None
        if job is not None and worker.first is None:
            seconds = BEGIN_SECONDS + sum(map(len, job.files)) / BYTES_A_SECOND
            worker.first = (job, asyncio.get_running_loop().call_later(seconds, self._end_unbegun, worker, job))

    def _end_unbegun(self, worker: RemoteWorker, job: QueuedJob) -> None:
        """Has another worker do what one does not begin, though it is there: else whoever waits would for ever."""
        if worker in self.workers and worker.line[:1] == [job] and job.begun is None:
            self.post(worker.peer.send(Drop(job.submit.key)))
            why = f"{clean(worker.name)} took the job and did not begin it"
            self.finish(worker, Failed(job.submit.key, why, own=True), [])

    def _give_back(self, worker: RemoteWorker) -> None:
        """Gives a worker that came back what it was at."""
        for key in [key for key in worker.has if key in self.waiting or key in self._orphans]:
            worker.has.discard(key)
            job = self.waiting.pop(key, None) or self._orphans.pop(key)
            if worker.can(job):
                job.begun = None
                self._give(worker, job)
            else:
                self.waiting[key] = job

    def _give_next(self, worker: RemoteWorker) -> None:
        job = next((job for job in self.waiting.values() if self._is_for(worker, job)), None)
        if job is not None:
            del self.waiting[job.submit.key]
            self._give(worker, job)

    def _is_for(self, worker: RemoteWorker, job: QueuedJob) -> bool:
        """Whether a worker may have a job: one that is set aside, where there is no other."""
        if not worker.can(job):
            return False
        return not worker.is_aside or not any(other.can(job) and not other.is_aside for other in self.workers)

    def _give(self, worker: RemoteWorker, job: QueuedJob) -> None:
        worker.line.append(job)
        submit = job.submit if job.beginning is None else job.beginning.rest_of(job.submit)
        self.post(worker.peer.send(submit, job.files))

    def _move_to(self, idle: RemoteWorker) -> None:
        """Gives a worker that has nothing to do what waits behind another one's job."""
        for worker in self.workers:
            for job in worker.line[1:]:
                if job.begun is None and self._is_for(idle, job):
                    worker.line.remove(job)
                    self.post(worker.peer.send(Drop(job.submit.key)))
                    self._give(idle, job)
                    return

    def machines(self) -> Machines:
        """Returns what clients are told of who is there."""
        return Machines([[worker.name, worker.offer] for worker in self.workers])

    def _tell_who_is_there(self) -> None:
        for client in self.clients:
            self.post(client.peer.send(self.machines()))

    def post(self, sending: Coroutine[Any, Any, None]) -> None:
        """Sends without waiting: a slow member holds up nobody else."""

        async def send() -> None:
            # Whoever is gone is taken leave of where it is listened to.
            with contextlib.suppress(Gone):
                await sending

        task = asyncio.ensure_future(send())
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)
