"""`trtconv.upgrade`: models tried on one TensorRT, then on another."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import queue
from collections.abc import Iterator, Sequence

from trtconv.core.documents.upgrade import ModelUpgrade, UpgradeReport
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.progress import NullProgress, Progress
from trtconv.core.requests.base import takes_request
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.upgrade import UpgradeRequest
from trtconv.core.target import Target
from trtconv.pipeline.batch import suitable_jobs, worst_exit_code
from trtconv.pipeline.upgrading.environments import Environment, interpreter_of
from trtconv.pipeline.upgrading.judging import Allowance, judged

_SLICE_SECONDS = 0.2


@takes_request
def upgrade(request: UpgradeRequest, progress: Progress | None = None) -> UpgradeReport:
    """Says what another TensorRT makes of models that one builds today. Nothing is written.

    Args:
        request: The builds, and the environments of both.
        progress: Told of every model that is done.

    Returns:
        The report; its exit_code is 1 where a model is worse off.

    Raises:
        InputError: There is nothing to build, or no such environment.
        EnvironmentMissing: No TensorRT works in one of them.
    """
    if not request.builds:
        raise InputError("there is no model to try", "Name one, or list it in trtconv.toml.")
    target = _family(request.builds)
    interpreters = interpreter_of(request.before), None if request.after is None else interpreter_of(request.after)
    builds = [dataclasses.replace(build, target=target) for build in request.builds]
    jobs = min(request.jobs or suitable_jobs(builds), len(builds))
    with contextlib.ExitStack() as ends:
        pairs = [
            _Pair(
                *(
                    ends.enter_context(Environment(interpreter, target, request.time_limit))
                    for interpreter in interpreters
                )
            )
            for _ in range(jobs)
        ]
        before, after = pairs[0].before.identity(), pairs[0].after.identity()
        allowed = Allowance(request.tolerance, request.slower)
        rows = list(_try(builds, pairs, allowed, progress or NullProgress()))
    worse = [1] if any(row.regressions for row in rows) else []
    codes = [side.exit_code for row in rows for side in (row.before, row.after)]
    return UpgradeReport(before, after, tuple(rows), worst_exit_code([*worse, *codes]))


def _family(builds: Sequence[BuildRequest]) -> Target | None:
    """Returns the family that is meant, of whatever version.

    Raises:
        InputError: There are several.
    """
    families = dict.fromkeys(None if build.target is None else build.target.family for build in builds)
    if len(families) > 1:
        names = " and ".join(map(str, families))
        raise InputError(f"the builds are for several families of TensorRT: {names}", "Name one with --target.")
    (family,) = families
    return None if family is None else Target(family)


@frozen
class _Pair:
    """The processes that try a model, on one side and then on the other: at the same time each would slow the other."""

    before: Environment
    after: Environment

    def judge(self, build: BuildRequest, allowed: Allowance) -> ModelUpgrade:
        return judged(str(build.model), self.before.attempt(build), self.after.attempt(build), allowed)


def _try(
    builds: Sequence[BuildRequest], pairs: Sequence[_Pair], allowed: Allowance, progress: Progress
) -> Iterator[ModelUpgrade]:
    """Yields what became of the models, in their order."""
    free: queue.SimpleQueue[_Pair] = queue.SimpleQueue()
    for pair in pairs:
        free.put(pair)

    def judge(build: BuildRequest) -> ModelUpgrade:
        pair = free.get()
        try:
            return pair.judge(build, allowed)
        finally:
            free.put(pair)

    pool = concurrent.futures.ThreadPoolExecutor(len(pairs))
    try:
        with progress.stage(f"{len(builds)} models"):
            futures = [pool.submit(judge, build) for build in builds]
            for number, (build, future) in enumerate(zip(builds, futures, strict=True), 1):
                yield _result(future)
                progress.phase(build.model.name, number, len(builds))
    finally:
        # Also where Ctrl-C came: who waits for a native call hears of nothing else.
        for pair in pairs:
            pair.before.close()
            pair.after.close()
        pool.shutdown(wait=False, cancel_futures=True)


def _result(future: concurrent.futures.Future[ModelUpgrade]) -> ModelUpgrade:
    while True:
        # In slices, so that signals get through.
        with contextlib.suppress(concurrent.futures.TimeoutError):
            return future.result(timeout=_SLICE_SECONDS)
