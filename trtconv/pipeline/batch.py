"""Many checks or builds at once, each worker a process of its own: a crash takes one model along and no more."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import dataclasses
import os
import pickle
import queue
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

from trtconv.core import budget
from trtconv.core.budget import BudgetExceeded
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import CheckReport, FailedRun
from trtconv.core.documents.commands import RunCounts
from trtconv.core.documents.rewrite import RewriteReport
from trtconv.core.errors import CUT_SHORT, Bug, BuildFailed, InputError, TrtconvError, cut_short, endless_number
from trtconv.core.files import remove_abandoned
from trtconv.core.findings import Finding
from trtconv.core.process import Cause, Lost, Process, Tell
from trtconv.core.progress import NullProgress, Progress
from trtconv.core.rations import RationGuard
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.core.stopwatch import ToldProgress
from trtconv.core.target import Target

Request = CheckRequest | BuildRequest
Result = CheckReport | BuildReport | FailedRun

LOST: Mapping[Cause, str] = {
    "crash": "TensorRT ended the process (a crash in native code, or too little memory)",
    "time": "it took longer than allowed",
    "memory": "it took more memory than there is",
    "file": CUT_SHORT,
}
"""What a `FailedRun` says where the worker, not trtconv, failed."""

_WORKER_BYTES = 1 << 30
"""Memory that a worker takes besides the model: TensorRT itself, mostly."""
_MODEL_COPIES = 4
_BUG_HINT = "This is a bug in trtconv. Please report it with the traceback on stderr."


class Executor(Protocol):
    """Where requests are run: in processes of this machine, or on others."""

    def run(self, requests: Sequence[Request]) -> Generator[tuple[int, Result], None, None]:
        """Yields each request's number and result, as they come; to close it ends what still runs."""


def run_all(
    requests: Sequence[Request],
    executor: Executor,
    progress: Progress | None = None,
    ended: Callable[[int, Result], None] = lambda index, result: None,
) -> list[Result]:
    """Runs checks and builds.

    Args:
        requests: What to do.
        executor: Who does it.
        progress: Told of every request that is done.
        ended: The same, with the request's number and its result.

    Returns:
        One result a request, in their order.
    """
    listener = progress or NullProgress()
    results: dict[int, Result] = {}
    with listener.stage(f"{len(requests)} models"), contextlib.closing(executor.run(requests)) as pairs:
        for index, result in pairs:
            results[index] = result
            ended(index, result)
            listener.phase(requests[index].model.name, len(results), len(requests))
    return [results[index] for index in sorted(results)]


class LocalPool:
    """Runs requests in several processes of this machine.

    Args:
        jobs: Number of processes; None: as many as the machine's processors and free memory allow.
    """

    def __init__(self, jobs: int | None = None) -> None:
        if jobs is not None and jobs < 1:
            raise InputError(f"jobs {jobs} is not at least 1", "Give how many processes there may be, or leave it out.")
        self._jobs = jobs

    def run(self, requests: Sequence[Request]) -> Generator[tuple[int, Result], None, None]:
        """Yields each request's number and result, as they come."""
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for index in range(len(requests)):
            waiting.put(index)
        rest = dict(enumerate(requests))
        workers = [Worker() for _ in range(self._jobs or suitable_jobs(requests))]
        results: queue.SimpleQueue[tuple[int, Result]] = queue.SimpleQueue()

        def serve(worker: Worker) -> None:
            with contextlib.suppress(queue.Empty):
                while True:
                    index = waiting.get_nowait()
                    results.put((index, worker.run(requests[index])))

        pool = concurrent.futures.ThreadPoolExecutor(len(workers))
        try:
            running = [pool.submit(serve, worker) for worker in workers]
            while not all(future.done() for future in running) or not results.empty():
                # In slices, so that signals get through.
                with contextlib.suppress(queue.Empty):
                    index, result = results.get(timeout=0.2)
                    del rest[index]
                    yield index, result
            for future in running:
                future.result()
        finally:
            # Also where Ctrl-C came: a worker in a native call hears of nothing else.
            for worker in workers:
                worker.close()
            pool.shutdown(wait=False, cancel_futures=True)
            builds = [request for request in rest.values() if isinstance(request, BuildRequest)]
            remove_abandoned(path for build in builds for path in (build.engine_path, build.report_path))


def suitable_jobs(requests: Sequence[Request]) -> int:
    """Returns how many requests can run at the same time here.

    Where kernels are timed on a GPU it is one: builds beside each other disturb what each measures, and each process
    would start TensorRT and CUDA anew, which takes seconds.
    """
    if any(isinstance(request, BuildRequest) and _times_kernels(request) for request in requests):
        return 1
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    largest = max((_model_bytes(request.model) for request in requests), default=0)
    free = _free_bytes()
    fitting = processors if free is None else free // (_WORKER_BYTES + _MODEL_COPIES * largest)
    return max(1, min(processors, fitting, len(requests)))


def _times_kernels(build: BuildRequest) -> bool:
    """Whether a build runs on a GPU: TensorRT-RTX alone builds without one."""
    from trtconv.runtimes import tensorrt

    full = Target("tensorrt")
    if build.target is not None:
        return build.target.family == full.family
    # Where it is installed and there is no GPU, TensorRT-RTX is taken.
    return tensorrt.is_installed(full) and tensorrt.card() is not None


def _model_bytes(path: Path) -> int:
    """Returns the size of a model; its external data is usually PATH.data."""
    total = 0
    for file in (path, Path(f"{path}.data")):
        with contextlib.suppress(OSError):
            total += file.stat().st_size
    return total


def _free_bytes() -> int | None:
    """Returns the memory that can be had without swapping; None where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


class Worker:
    """A process that runs requests one after another; started with the first, and again after it died."""

    def __init__(self) -> None:
        # Bugs of ours and native code write to the command's own stderr.
        self._process = Process("trtconv.pipeline.batch:serve", quiet=False)
        self._budget = budget.current()

    @overload
    def run(self, request: Request, limit_s: float | None = None) -> Result: ...
    @overload
    def run(self, request: RewriteRequest, limit_s: float | None = None) -> RewriteReport | FailedRun: ...
    def run(self, request: Any, limit_s: float | None = None) -> Any:
        """Runs a request; whatever happens to the process becomes a result.

        Args:
            request: What to do.
            limit_s: Seconds after which the process is ended; None: never.
        """
        with budget.allowed(self._budget):
            guard = RationGuard([request.model])
        try:
            return pickle.loads(base64.b64decode(self._process.call(request, limit_s, guard.hear, guard.watch)))
        except BudgetExceeded as error:
            return failed_run(request, error)
        except Lost as lost:
            if lost.cause == "file":
                return failed_run(request, cut_short(str(request.model)))
            ended = BuildFailed(LOST[lost.cause], "Run it by itself, and report the model to NVIDIA.")
            return dataclasses.replace(failed_run(request, ended), lost=lost.cause)

    def close(self) -> None:
        """Ends the process, in the middle of a request too."""
        self._process.close()


def serve(request: Request | RewriteRequest, tell: Tell) -> str:
    """Runs a request in the process of a `Worker`; returns the result, pickled, as text."""
    return base64.b64encode(pickle.dumps(run_request(request, ToldProgress(tell)))).decode()


def run_request(request: Request | RewriteRequest, progress: Progress | None = None) -> Result | RewriteReport:
    """Runs a request in this process, which tells of its stages; an exception becomes a `FailedRun`."""
    from trtconv import pipeline

    try:
        if isinstance(request, RewriteRequest):
            return pipeline.rewrite(request, progress)
        run: Any = pipeline.check if isinstance(request, CheckRequest) else pipeline.build
        result: Result = run(request, progress)
        return result
    except TrtconvError as error:
        return failed_run(request, error)
    except MemoryError:
        return failed_run(request, BuildFailed("out of memory", "Use --jobs 1, or a machine with more memory."))
    except Exception as error:
        if (endless := endless_number(error)) is not None:
            return failed_run(request, endless)
        # A bug of ours is not to pass for a crash of TensorRT. Stderr is the command's own.
        traceback.print_exc()
        kind = type(error).__name__
        failed = failed_run(request, Bug(f"internal error: {kind}: {error}", _BUG_HINT))
        return dataclasses.replace(failed, kind=kind)


def failed_run(request: Request | RewriteRequest, error: TrtconvError) -> FailedRun:
    """Returns what stands for a request that ended with an exception."""
    target = "auto" if request.target is None else str(request.target)
    kind = type(error).__name__
    findings = tuple(finding for finding in getattr(error, "findings", ()) if isinstance(finding, Finding))
    return FailedRun(str(request.model), target, kind, error.message, error.hint, error.exit_code, findings=findings)


def worst_exit_code(codes: Sequence[int]) -> int:
    """Returns the exit code of several runs: a bug, then a bad call, a missing runtime, a failed model, and success."""
    return next((code for code in (3, 2, 4, 1) if code in codes), 0)


def summarize_runs(results: Sequence[Result]) -> RunCounts:
    """Counts results."""
    codes = [result.exit_code for result in results]
    current = sum(isinstance(result, BuildReport) and result.up_to_date for result in results)
    good = codes.count(0)
    return RunCounts(len(results), good, current, len(codes) - good, worst_exit_code(codes))
