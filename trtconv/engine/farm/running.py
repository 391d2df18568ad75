"""Does a job on this machine, in a process of its own: what breaks there costs that job alone."""

from __future__ import annotations

import errno
import json
import os
import platform
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from trtconv.core.decode import decoded
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import FailedRun
from trtconv.core.documents.farm import ErrorRecord, JobResult
from trtconv.core.encode import strict
from trtconv.core.errors import Bug, EnvironmentMissing, TrtconvError
from trtconv.core.frozen import frozen
from trtconv.core.process import Lost, Process, Tell, WorkerBug
from trtconv.core.rations import RationGuard
from trtconv.core.reading import read_plain
from trtconv.core.requests.bench import BenchRequest
from trtconv.core.requests.engine import VerifyRequest
from trtconv.core.scratch import Scratch
from trtconv.core.stopwatch import ToldProgress
from trtconv.core.version import __version__
from trtconv.engine.farm.code import NO_CODE, CodeHere, HeldCode
from trtconv.engine.farm.job import BuildJob
from trtconv.pipeline.batch import LOST, run_request

_POLL_SECONDS = 0.25
_INSIDE, _ENGINE = "in", Path("..", "out", "engine")
"""Where a job's files lie in its folder, and from there the engine; no path of it has a name that somebody chose."""


class JobRunner:
    """Does jobs one after another, all in one process, which is started again where it is lost.

    Args:
        timing_folder: Where timing caches lie, one a version of TensorRT and GPU; None: there are none.
        code: What jobs may be built with.
    """

    def __init__(self, timing_folder: Path | None = None, code: HeldCode = NO_CODE) -> None:
        self._code = code
        self._timing = timing_folder
        self._process = Process("trtconv.engine.farm.running:build")

    def run(
        self, job: BuildJob, fetch: Callable[[str, int], bytes], unwanted: Callable[[], bool] | None = None
    ) -> tuple[JobResult, bytes]:
        """Does a job.

        Args:
            job: What to do.
            fetch: Returns the job's file with a SHA-256 and a size in bytes.
            unwanted: Whether nobody waits for it any more; the job is then ended.

        Returns:
            The result, whatever happened, and the engine, empty where there is none.
        """
        with Scratch("job") as scratch:
            folder = scratch.path
            (folder / "out").mkdir()
            try:
                job.unpack(folder / _INSIDE, fetch)
                result = self._call(job, folder / _INSIDE, unwanted or (lambda: False))
            except (TrtconvError, OSError) as error:
                result = JobResult(job.name, error=_error(error))
            except Lost as lost:
                result = _lost(job, lost)
            except WorkerBug as bug:
                why = f"internal error: {bug.summary}"
                result = _crashed(job, why, "This is a bug in trtconv.", str(bug), Bug.exit_code)
            if result.error is not None and (fault := _disk_fault(folder, job)):
                result = JobResult(job.name, error=_error(fault))
            engine = folder / _INSIDE / _ENGINE
            return result, read_plain(engine) if result.engine is not None else b""

    def close(self) -> None:
        """Ends the process."""
        self._process.close()

    def _call(self, job: BuildJob, folder: Path, unwanted: Callable[[], bool]) -> JobResult:
        task = BuildTask(folder, json.dumps(job.to_json()), self._timing, self._code)
        process, end = self._process, threading.Event()
        guard = RationGuard([folder / name for name in (job.model_name, *job.data)])

        def watch() -> None:
            while not end.wait(_POLL_SECONDS):
                if unwanted():
                    self._process = Process("trtconv.engine.farm.running:build")
                    process.close()
                    return

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            return decoded(JobResult, process.call(task, None, guard.hear, guard.watch))
        finally:
            end.set()
            watching.join()


@frozen
class BuildTask:
    """What the process of a `JobRunner` is to do.

    Args:
        folder: Where the job's files lie.
        job: The job, as JSON.
        timing: Where timing caches lie; None: there are none.
        code: What it may be built with.
    """

    folder: Path
    job: str
    timing: Path | None
    code: HeldCode = NO_CODE


def build(task: BuildTask, tell: Tell) -> dict[str, object]:
    """Builds in the process of a `JobRunner`, and does what follows; returns the JSON of a `JobResult`."""
    os.chdir(task.folder)
    job = BuildJob.read(task.job)
    code = job.code.here(task.code)
    request = code.on(job.request(_ENGINE, timing_folder=task.timing))
    result = run_request(request, ToldProgress(tell))
    if isinstance(result, FailedRun):
        error = ErrorRecord(result.kind, result.message, result.hint, result.exit_code)
        return JobResult(job.name, error=error).to_json()
    assert isinstance(result, BuildReport)
    follows = job.then if result.engine is not None and not result.exit_code else ()
    then = {kind: _after(kind, request.model, code) for kind in follows}
    return JobResult(job.name, result.to_json(), then=then).to_json()


def _after(kind: str, model: Path, code: CodeHere) -> dict[str, object]:
    """Verifies or times the engine that was built."""
    from trtconv import engine

    # An engine with a library inside is loaded with trust alone: it was built here, of one that is here.
    trust = bool(code.serialized_plugins)
    try:
        if kind == "verify":
            request = VerifyRequest(
                model, _ENGINE, plugins=code.plugins, trust=trust, extend=code.extend, references=code.references
            )
            report = engine.verify(request).to_json()
        else:
            report = engine.bench(BenchRequest(_ENGINE, plugins=code.plugins, trust=trust)).to_json()
        return dict(strict(report))
    except TrtconvError as error:
        return {"error": _error(error).to_json(), "exit_code": error.exit_code}


def _disk_fault(folder: Path, job: BuildJob) -> EnvironmentMissing | None:
    """Returns why a job that failed may have: its folder does not take as much as the job's files once more."""
    try:
        with (folder / "room").open("wb", buffering=0) as file:
            for _ in range(1 + (sum(job.files.values()) >> 20)):
                if file.write(bytes(1 << 20)) < 1 << 20:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        why = f"{folder} cannot be written on {platform.node()}: {error.strerror or error}"
        return EnvironmentMissing(why, "Make room there, or start the worker with TMPDIR on another disk.")
    return None


def _lost(job: BuildJob, lost: Lost) -> JobResult:
    """Returns what tells of a process that ended; one that wanted memory may find more on another machine."""
    # Nobody but the system's keeper of memory sends the signal that nothing survives.
    short = lost.cause == "memory" or lost.signal == getattr(signal, "SIGKILL", 9)
    hint = "Give it a machine with more memory." if short else "Report the model to NVIDIA."
    code = EnvironmentMissing.exit_code if short else 1
    return _crashed(
        job, LOST["memory" if short else lost.cause], f"It ended with {lost.why}. {hint}", lost.stderr, code
    )


def _crashed(job: BuildJob, message: str, hint: str, log: str, exit_code: int = 1) -> JobResult:
    system = f"trtconv {__version__}, Python {platform.python_version()}, {platform.platform()}"
    error = ErrorRecord("ProcessEnded", message, hint, exit_code)
    return JobResult(job.name, error=error, log=f"{system}\n{log}")


def _error(error: Exception) -> ErrorRecord:
    """Returns an exception as the boundary's error document has it."""
    code, hint = getattr(error, "exit_code", 4), getattr(error, "hint", "")
    return ErrorRecord(type(error).__name__, str(error), hint, code)
