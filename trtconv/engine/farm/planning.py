"""Which builds are up to date, which are to be done, and for which nobody has the GPU."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Sequence

from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.commands import PlannedBuild
from trtconv.core.documents.saved import load_report
from trtconv.core.errors import EnvironmentMissing, InputError, TrtconvError
from trtconv.core.frozen import frozen
from trtconv.core.gpus import gpu_labels
from trtconv.core.options import refuse_unmet
from trtconv.core.reading import DOCUMENT_BYTES, read_plain
from trtconv.core.requests.build import BuildRequest
from trtconv.engine.farm.acceptance import as_told
from trtconv.engine.farm.job import BuildJob
from trtconv.engine.farm.machines import Choice, Machine, choose
from trtconv.engine.farm.results import Waiting
from trtconv.graph.fitting import fit
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.outputs import Stale, asked_profiles, check_outputs, of_its_gpu, protect_data, standing

UP_TO_DATE, TO_BUILD, NOBODY, ERROR = "up-to-date", "to-build", "nobody", "error"


@frozen
class Planned:
    """One build, looked at.

    Args:
        request: What is asked.
        state: UP_TO_DATE, TO_BUILD, NOBODY (has the GPU) or ERROR.
        job: The build as data; None where the model cannot be read, or its samples are here alone.
        error: Why it cannot be planned.
        choice: Who can build it.
    """

    request: BuildRequest
    state: str
    job: BuildJob | None = None
    error: TrtconvError | None = None
    choice: Choice | None = None

    @property
    def exit_code(self) -> int:
        """0, or why this build cannot be started."""
        if self.error is not None:
            return self.error.exit_code
        return EnvironmentMissing.exit_code if self.state == NOBODY else 0

    def record(self) -> PlannedBuild:
        """Returns what the plan tells of it."""
        request = self.request
        name = None if self.job is None else self.job.name
        why, hint = (None, None) if self.error is None else (self.error.message, self.error.hint)
        target, engine = str(request.target or "auto"), str(request.engine_path)
        version = None if self.choice is None else self.choice.version
        return PlannedBuild(str(request.model), target, self.state, name, engine, why, hint, version)

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the farm is mixed, as lines."""
        if self.choice is None:
            return ()
        target, own = self.request.target or "auto", self.choice.version
        others = sorted({info.version for info in self.choice.others} - {own})
        old = (
            [f"{target} is built by {own}; engines of {', '.join(others)}, which is there too, are kept"]
            if others
            else []
        )
        names = ", ".join(self.choice.strangers)
        return (*old, *([f"{names} could build for {target}, and has another trtconv"] if names else []))


def plan(
    requests: Sequence[BuildRequest],
    machines: Sequence[Machine] | None,
    then: tuple[str, ...] = (),
    *,
    here: bool = False,
) -> list[Planned]:
    """Looks at every build.

    Args:
        requests: What is asked.
        machines: Those that there are; None: jobs are for whoever has the GPU.
        then: What is to be done with the engines.
        here: Whether this machine is the only one, so that nothing travels.
    """
    return [_look_at(request, machines, then, here) for request in requests]


def _look_at(request: BuildRequest, machines: Sequence[Machine] | None, then: tuple[str, ...], here: bool) -> Planned:
    try:
        choice = None if machines is None else choose(request.target, machines)
        waiting, report = prepare(request, choice, then, here=here)
    except TrtconvError as error:
        # Without the frames that it came through, and what it came of: they hold the model.
        error.__cause__ = error.__context__ = None
        return Planned(request, ERROR, error=error.with_traceback(None))
    # The model is not kept: of thousands there would not be the memory.
    job = None if waiting is None else waiting.job
    if report is not None:
        return Planned(request, UP_TO_DATE, job, choice=choice)
    return Planned(request, NOBODY if machines is not None and choice is None else TO_BUILD, job, choice=choice)


def prepare(
    request: BuildRequest, choice: Choice | None, then: tuple[str, ...] = (), *, here: bool = False
) -> tuple[Waiting | None, BuildReport | None]:
    """Makes a job of a request.

    Args:
        request: What is asked.
        choice: Who can do it; None: whoever has the GPU.
        then: What is done with the engine.
        here: Whether it is done on this machine.

    Returns:
        The job, and the report of the engine that is there where that is up to date. There is no job of what is
        measured on samples: these do not travel, and where nothing has to be built, or is built here, need not.

    Raises:
        InputError: The model or its samples cannot be read, bounds are missing, or the engine cannot be written;
            samples would have to travel.
    """
    # The model of an earlier call is a cycle, and commands look for cycles seldom.
    gc.collect(0)
    refuse_unmet(request)
    check_outputs(request)
    model = OnnxModel.load(request.model, hashed=True)
    fit(model, request.interface)
    protect_data(model, request.engine_path, request.report_path)
    profiles = asked_profiles(model, request)
    if request.data is not None:
        # Loaded only here: most builds measure nothing.
        from trtconv.pipeline.mixing import samples_of

        samples_of(request, model, profiles, settled=False)
    report = None if request.force else _current_report(request, model, choice, then)
    if request.data is not None and (here or report is not None):
        return None, report
    job = BuildJob.of(request, model, None if choice is None else choice.version, then)
    return Waiting(request, job, model), report


def _current_report(
    request: BuildRequest, model: OnnxModel, choice: Choice | None, then: tuple[str, ...]
) -> BuildReport | None:
    if not request.report_path.exists():
        return None
    with contextlib.suppress(OSError, InputError):
        old = load_report(request.report_path).report
        if not could_make(choice, old, request):
            return None
        for kind in then:
            measured = read_plain(request.beside(kind).path, DOCUMENT_BYTES)
            if old.engine is None or str(old.engine.sha256).encode() not in measured:
                return None
        verdict = standing(request, as_told(request, model, old), model)
        return None if isinstance(verdict, Stale) else verdict
    return None


def could_make(choice: Choice | None, report: BuildReport, request: BuildRequest) -> bool:
    """Whether those who can build could have made the engine of a report."""
    runtime, cast_by, target = report.runtime, report.plan.cast_by, request.target
    if choice is None:
        if target is None:
            return True
        # A report does not tell the compute capability.
        any_gpu = target.gpu is None or target.gpu.startswith("cc") or not of_its_gpu(report)
        return target.fits(runtime.family, runtime.version) and (any_gpu or target.gpu in gpu_labels(runtime.gpu))
    if cast_by and cast_by not in choice.cast_by:
        return False
    return any(
        (info.family, info.version) == (runtime.family, runtime.version)
        and (info.gpu == runtime.gpu or not of_its_gpu(report))
        for info in (*choice.infos, *choice.others)
    )
