"""What a farm does, for people: its workers, what each is at, and what waits."""

from __future__ import annotations

import time

from trtconv.core.documents.farm import FarmStatus, QueuedStatus, WorkerStatus
from trtconv.engine.farm.dispatch import Dispatch, QueuedJob, RemoteWorker

_MOST_QUEUED = 1000
"""Jobs of the queue that are listed; all are counted."""
_MOST_NAME = 200


def status_of(dispatch: Dispatch) -> FarmStatus:
    """Returns what a farm does now."""
    queue = tuple(
        QueuedStatus(job.submit.label[:_MOST_NAME], round(time.monotonic() - job.since, 1), len(job.clients))
        for job, _ in zip(dispatch.waiting.values(), range(_MOST_QUEUED), strict=False)
    )
    workers = tuple(_worker(worker) for worker in dispatch.workers)
    clients = {client for job in dispatch.jobs.values() for client in job.clients}
    return FarmStatus(workers, queue, len(dispatch.waiting), len(clients), tuple(dispatch.log))


def _worker(worker: RemoteWorker) -> WorkerStatus:
    machine, at = worker.machine, next((job for job in worker.line if job.begun is not None), None)
    began = None if at is None else at.begun
    return WorkerStatus(
        worker.name,
        _state(worker, at),
        worker.why if worker.is_aside else "",
        None if at is None else at.submit.label[:_MOST_NAME],
        None if began is None else round(time.monotonic() - began, 1),
        len(worker.line) - (at is not None),
        worker.count,
        worker.failed,
        machine.labels if machine else (),
        tuple(f"{info.family}-{info.version}" for info in machine.runtimes) if machine else (),
        machine.driver if machine else None,
        machine.trtconv if machine else None,
        machine.source if machine else None,
    )


def _state(worker: RemoteWorker, at: QueuedJob | None) -> str:
    if worker.is_silent:
        return "silent"
    if worker.machine is None:
        return "starting"
    if at is not None:
        return "building"
    return "aside" if worker.is_aside else "idle"
