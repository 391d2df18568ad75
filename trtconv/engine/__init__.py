"""What is done with a built engine: verify, bench, inspect, run, refit.

The functions here are what a caller sees. Each hands its request to a process of its own (`trtconv.core.process`),
where the module of the same name does the work: loading an engine runs code that is in it, may crash, and may hang.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from trtconv.core import foreign
from trtconv.core.decode import decoded
from trtconv.core.dims import elements_of
from trtconv.core.documents.bench import BenchReport
from trtconv.core.documents.inspect import EngineInspection, Inspected, ModelInspection, RunReport
from trtconv.core.documents.pipeline import is_pipeline, load_document
from trtconv.core.documents.pipeline_verify import PipelineRunReport, PipelineVerifyReport
from trtconv.core.documents.refit import RefitReport
from trtconv.core.documents.verify import Bisection, VerifyReport
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError, TrtconvError, cut_short
from trtconv.core.options import refuse_unmet, validate
from trtconv.core.process import Lost, WorkerBug, call
from trtconv.core.progress import NullProgress, Progress
from trtconv.core.requests.base import takes_request
from trtconv.core.requests.bench import BenchRequest
from trtconv.core.requests.engine import InspectRequest, RefitRequest, RunRequest, VerifyRequest
from trtconv.engine.hearing import Hearing
from trtconv.pipeline.extending.added import code_of


@takes_request
def verify(request: VerifyRequest, progress: Progress | None = None) -> VerifyReport:
    """Compares an engine with the model that it was built from, which runs on ONNX Runtime in float32.

    Where the engine cannot be run here, the model as the passes and casts make it is compared instead, and the report
    says so (`ran`, `why_not_run`).

    Args:
        request: What to compare, with what inputs, and how far they may be apart.
        progress: Told of the stages.

    Returns:
        The report. Its exit_code is 1 where an output is beyond the tolerance, 4 where not every size that has to be
        compared could be.

    Raises:
        InputError: A bad request; a file that cannot be read; an engine that is not that of its report or model.
        EnvironmentMissing: The engine was built for another TensorRT or GPU, or nothing could be compared here.
        EngineFailed: TensorRT does not load the engine, or it ended its process.
    """
    refuse_unmet(request)
    started = time.monotonic()
    listener = progress or NullProgress()
    seconds: dict[str, float] = {}
    incomplete = ""

    def look(report: VerifyReport) -> None:
        if report.cases:
            listener.phase(report.cases[-1].size, len(report.cases), 0)

    with foreign.using(code_of(request)), Hearing(VerifyReport, progress, look) as hearing:
        try:
            seconds = call("trtconv.engine.verifying:serve", request, request.seconds, hearing)
        except Lost as lost:
            if hearing.report is None or lost.cause == "memory":
                raise _lost(lost, f"reading {request.model} and its engine", request.seconds) from lost
            if lost.cause != "time" and hearing.doing == "engine":
                raise _crashed(lost, len(hearing.report.cases)) from lost
            incomplete = f"{hearing.doing}: {lost.why}"
    seconds = {**seconds, "total": time.monotonic() - started}
    assert hearing.report is not None
    incomplete = "; ".join(filter(None, (incomplete, _left_out(hearing.report))))
    report = dataclasses.replace(hearing.report, seconds=seconds, incomplete=incomplete)
    rest = request.seconds - (time.monotonic() - started)
    if request.bisect and report.exit_code == 1:
        return dataclasses.replace(report, bisect=_bisect(request, report, rest, progress))
    return report


@takes_request
def bench(request: BenchRequest, progress: Progress | None = None) -> BenchReport:
    """Times an engine, or two in turns, or serves requests on several at the same time.

    Args:
        request: Which, where and how long.
        progress: Told of the stages.

    Returns:
        The report. Its exit_code is 4 where not every size could be timed.

    Raises:
        InputError: A bad request; a file that cannot be read; an engine that is not that of its report.
        EnvironmentMissing: There is no GPU, or the engine was built for another TensorRT or GPU.
        EngineFailed: TensorRT does not load the engine, or it broke down.
    """
    validate(request)
    refuse_unmet(request)
    started = time.monotonic()
    listener = progress or NullProgress()
    seconds: dict[str, float] = {}
    why = ""
    hear = Hearing(
        BenchReport, progress, lambda report: listener.phase("size", len(report.rows) + len(report.loads), 0)
    )
    with foreign.using(code_of(request)), hear as hearing:
        try:
            seconds = call("trtconv.engine.benching:serve", request, request.seconds, hearing)
        except Lost as lost:
            if hearing.report is None or lost.cause != "time":
                raise _lost(lost, f"running {request.engine}", request.seconds) from lost
            why = lost.why
    assert hearing.report is not None
    seconds = {**seconds, "total": time.monotonic() - started}
    return dataclasses.replace(hearing.report, seconds=seconds, incomplete=why or hearing.report.incomplete)


@takes_request
def inspect(request: InspectRequest, progress: Progress | None = None) -> EngineInspection | ModelInspection:
    """Looks into an engine, the report of one, or an ONNX file.

    An engine is loaded only where it is the one that its report tells of, or is trusted; where it cannot be loaded
    here, what the report knows of it is returned, and why.

    Args:
        request: The file.
        progress: Told of the stages.

    Returns:
        What is in it.

    Raises:
        InputError: The file cannot be read, or is not the engine of its report.
        EnvironmentMissing: The engine has no report, and cannot be loaded here.
        EngineFailed: TensorRT does not load the engine.
    """
    # What it is is for the process to see, which alone opens it.
    document = _document("trtconv.engine.inspecting:serve", request, f"reading {request.path}", progress)
    if decoded(Inspected, document).kind == "onnx":
        return decoded(ModelInspection, document)
    return decoded(EngineInspection, document)


@takes_request
def run(request: RunRequest, progress: Progress | None = None) -> RunReport:
    """Runs an engine once, with inputs of a file, and writes its outputs into another.

    Args:
        request: The engine and the files.
        progress: Told of the stages.

    Returns:
        What was read and written.

    Raises:
        InputError: A file cannot be read or written, or the inputs do not fit the engine.
        EnvironmentMissing: There is no GPU, or the engine was built for another TensorRT or GPU.
        EngineFailed: TensorRT does not load or run the engine.
    """
    _require_files(request)
    return decoded(RunReport, _document("trtconv.engine.running:serve", request, f"running {request.engine}", progress))


@takes_request
def refit(request: RefitRequest, progress: Progress | None = None) -> RefitReport:
    """Puts the weights of another model of the same graph into an engine, without building it again.

    Args:
        request: The engine and the model.
        progress: Told of the stages.

    Returns:
        Every weight that the engine was given. The exit_code is 1 where the network with the new weights was found to
        differ from the model; nothing is then written.

    Raises:
        InputError: A file cannot be read or written; the engine takes no weights; the model has another graph.
        EnvironmentMissing: There is no GPU, or the engine was built for another TensorRT or GPU.
        EngineFailed: TensorRT does not refit the engine, or some of the old weights would stay in it.
    """
    what = f"refitting {request.engine}"
    return decoded(RefitReport, _document("trtconv.engine.refitting:serve", request, what, progress))


@takes_request
def run_pipeline(request: RunRequest, progress: Progress | None = None) -> PipelineRunReport:
    """Runs a model in parts once; as `run`, with a `MODEL.pipeline.json` for the engine."""
    _require_files(request)
    task = "trtconv.engine.running:serve_pipeline"
    return decoded(PipelineRunReport, _document(task, request, f"running {request.engine}", progress))


@takes_request
def verify_pipeline(request: VerifyRequest, progress: Progress | None = None) -> PipelineVerifyReport:
    """Compares a model in parts with the model.

    Where its engines cannot be run here, its parts are run on ONNX Runtime instead, which shows that the cut is right,
    and what TensorRT's parser makes of each engine's part is compared with the part.

    Args:
        request: As for `verify`; its model, or its engine, is a `MODEL.pipeline.json`.
        progress: Told of the stages.

    Raises:
        InputError: A bad request; a file that cannot be read, or is not the one that was written.
        EnvironmentMissing: The engines were built for another machine, or nothing could be compared here.
        EngineFailed: TensorRT does not load an engine, or it ended its process.
    """
    refuse_unmet(request)
    started = time.monotonic()
    path = request.engine if request.engine is not None and is_pipeline(request.engine) else request.model
    task = "trtconv.engine.pipeline_verifying:serve"
    report = decoded(PipelineVerifyReport, _document(task, request, f"running {path}", progress))
    if report.why_not_run is not None:
        shared = {name: getattr(request, name) for name in ("limits", "seed", "trust", "key")}
        alone = []
        for model, engine in load_document(path).engines():
            seconds = max(1.0, request.seconds - (time.monotonic() - started))
            alone.append(verify(VerifyRequest(model=model, engine=engine, seconds=seconds, **shared), progress))
        report = dataclasses.replace(report, engines=tuple(alone))
    return dataclasses.replace(report, seconds={**report.seconds, "total": time.monotonic() - started})


_RUN = (
    "Write: trtconv run ENGINE --inputs IN.npz -o OUT.npz; in Python RunRequest(ENGINE, inputs=IN_NPZ, output=OUT_NPZ)."
)


def _require_files(request: RunRequest) -> None:
    """Raises InputError where a run has no inputs, or nowhere to write to."""
    if request.inputs is None:
        raise InputError("a run lacks its inputs", _RUN)
    if request.output is None:
        raise InputError("a run lacks the file that its outputs go to", _RUN)


def _document(
    task: str, request: InspectRequest | RefitRequest | RunRequest | VerifyRequest, what: str, progress: Progress | None
) -> Any:
    """Returns the document of what one process, of its own, finds; `what` says what it does."""
    with foreign.using(code_of(request)), Hearing(VerifyReport, progress) as hearing:
        try:
            return call(task, request, request.seconds, hearing)
        except Lost as lost:
            raise _lost(lost, what, request.seconds) from lost


def _left_out(report: VerifyReport) -> str:
    """Says which sizes were not compared that had to be."""
    skipped = [case for case in report.cases if case.skipped and case.passed is not True and case.is_required]
    if skipped:
        first = skipped[0]
        *sizes, last = [case.size for case in skipped if (case.profile, case.skipped) == (first.profile, first.skipped)]
        dims = f"{', '.join(sizes)} and {last}" if sizes else last
        return f"{dims} of profile {first.profile}: {first.skipped}"
    return "" if report.cases else "there was nothing to compare"


def _bisect(request: VerifyRequest, report: VerifyReport, seconds: float, progress: Progress | None) -> Bisection:
    """Looks for the first tensor that diverges; a failure of the search is no failure of the verification."""
    failed = [case for case in report.cases if case.passed is False and case.outputs]
    if not failed or seconds < 1:
        return Bisection(why="no output could be compared" if not failed else "no time is left")
    smallest = min(failed, key=lambda case: elements_of(case.shapes))
    # It was chosen once.
    request = request if report.engine is None else dataclasses.replace(request, engine=Path(report.engine.path))
    task = "trtconv.engine.bisecting:serve", (request, report.ran, smallest, report.tolerance)
    with foreign.using(code_of(request)), Hearing(VerifyReport, progress) as hearing:
        try:
            return decoded(Bisection, call(*task, seconds, hearing))
        except (Lost, TrtconvError) as error:
            return Bisection(why=f"the search failed: {error}")
        except WorkerBug as bug:
            return Bisection(why=f"the search failed: {bug.summary} (a bug in trtconv)")


def _lost(lost: Lost, doing: str, seconds: float) -> Exception:
    if lost.cause == "time":
        return EnvironmentMissing(f"{doing} took longer than {seconds:g} s", "Give it more time: --time-limit.")
    if lost.cause == "memory":
        return EnvironmentMissing(f"{doing}: out of memory", "Use smaller sizes.")
    if lost.cause == "file":
        return cut_short(doing)
    stderr = f"\n{lost.stderr}" if lost.stderr else ""
    return EngineFailed(f"{doing} ended its process ({lost.why}){stderr}")


def _crashed(lost: Lost, count: int) -> EngineFailed:
    stderr = f"\n{lost.stderr}" if lost.stderr else ""
    return EngineFailed(f"the engine ended its process ({lost.why}) after {count} sizes{stderr}", "Build it again.")
