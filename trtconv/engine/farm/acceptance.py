"""Holds what came back for a job against what was asked, field by field, before any of it is written."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from trtconv.core.decode import Fault, checked_schema, decoded
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.farm import ErrorRecord, Followed, JobResult
from trtconv.core.documents.parts import EngineIdentity, RuntimeIdentity
from trtconv.core.documents.saved import saved
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import AFTERWARDS
from trtconv.core.target import FAMILIES
from trtconv.engine.farm.claims import check_lattice, check_tensors
from trtconv.engine.farm.job import BuildJob
from trtconv.engine.farm.store import intact
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.building import planned
from trtconv.pipeline.outputs import Identity, as_kept
from trtconv.runtimes.tensorrt import Capabilities, RuntimeInfo

Fetch = Callable[[str, int], bytes | memoryview]
"""Returns the file with a SHA-256 and a size in bytes."""

HINT = "Build it again, or on another machine."
_CODES = range(5)
_MOST_SECONDS = 1e8
_KEYS = {"schema", "job", "report", "error", "then", "log"}


class Build(Protocol):
    """A build that is done elsewhere: what was asked, the same as data, and its model."""

    request: BuildRequest
    job: BuildJob
    model: OnnxModel


@frozen
class Broken:
    """A job that came to nothing: the error, and the end of the log."""

    error: ErrorRecord
    log: str


@frozen
class Built:
    """A job that was done.

    Args:
        report: As a build here would return it; the path of the engine is that of this machine.
        engine: The engine; None where the model was refused.
        then: What verify and bench found, as JSON.
    """

    report: BuildReport
    engine: memoryview | None
    then: Mapping[str, Mapping[str, Any]]


def accepted(build: Build, document: Any, fetch: Fetch, worker: str | None, then: Collection[str]) -> Broken | Built:
    """Returns what is said of a job.

    Args:
        build: What was asked.
        document: The result.
        fetch: Returns the engine.
        worker: Who made it.
        then: What of verify and bench is taken; the rest is left out.

    Raises:
        InputError: It is not the result of this job, or says what cannot be.
    """
    keys = document.keys() if isinstance(document, dict) else set()
    if not _KEYS <= keys <= {*_KEYS, "worker"}:
        raise InputError(f"what came back for {build.request.model} is not its result", HINT)
    try:
        result = decoded(JobResult, checked_schema(document))
        if result.job != build.job.name:
            raise InputError(f"what came back for {build.request.model} is not its result", HINT)
        if result.error is not None:
            _check_error(result)
            return Broken(result.error, result.log)
        outcome = _own_report(build, result, fetch, worker)
        return dataclasses.replace(outcome, then={kind: outcome.then[kind] for kind in outcome.then if kind in then})
    except (Fault, ValueError) as error:
        raise InputError(f"what came back for {build.request.model} is no result: {error}", HINT) from error


def as_told(request: BuildRequest, model: OnnxModel, report: BuildReport) -> BuildReport:
    """Returns the report that a build begins with where the TensorRT is the one that a report tells of."""
    runtime, cast_by = report.runtime, report.plan.cast_by
    unknown = dict.fromkeys(Capabilities.__dataclass_fields__, False)
    capabilities = Capabilities(**{**unknown, "builder_precision_flags": not cast_by})
    info = RuntimeInfo(runtime.family, runtime.version, runtime.gpu, capabilities)
    return planned(request, model, info, cast_by)


def _check_error(result: JobResult) -> None:
    """Raises ValueError where an error does not go with what else there is."""
    assert result.error is not None
    if result.report is not None or result.then:
        raise ValueError("it is a report and an error")
    if result.error.exit_code not in _CODES[1:]:
        raise ValueError(f"an error has no exit code {result.error.exit_code}")


def _check_parts(report: BuildReport, then: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises ValueError where the parts of a result contradict each other."""
    if not then.keys() <= set(AFTERWARDS):
        raise ValueError("something else followed than verify and bench")
    if any(decoded(Followed, document).exit_code not in _CODES for document in then.values()):
        raise ValueError("what followed has an exit code that there is not")
    # As pipeline.build has it: 1 and no engine, or an engine and 0.
    if (report.exit_code, report.engine is None) not in ((0, False), (1, True)):
        raise ValueError(f"exit code {report.exit_code} does not go with {'no' * (report.engine is None)} engine")
    if then and report.engine is None:
        raise ValueError("nothing can follow what was not built")


def _own_report(build: Build, result: JobResult, fetch: Fetch, worker: str | None) -> Built:
    if result.report is None:
        raise ValueError("it is neither a report nor an error")
    came = saved(build.request.report_path, result.report)
    old = came.report
    _check_parts(old, result.then)
    if against := old.contradiction(selected=bool(build.request.selection.select)):
        raise ValueError(against)
    _check_runtime(build, old.runtime)
    template = as_told(build.request, build.model, old)
    # All that is in it is understood: both ends have the same trtconv.
    whole = came.is_intact and old.to_json() == result.report
    if not whole or Identity.of(old).changes(Identity.of(template)):
        raise InputError(f"what came back for {build.request.model} is of another build", HINT)
    _check_profiles(template, old)
    if old.engine is not None:
        check_tensors(build.model, old.io, cast=build.request.cast_interface, retyped=bool(build.request.io))
    check_lattice(template.inputs, (*template.profiles, *old.profiles), old.lattice)
    if not all(0 <= seconds < _MOST_SECONDS for seconds in old.seconds.values()):
        raise ValueError("it took a time that nothing takes")
    engine, data = old.engine, None
    if engine is not None:
        if engine.sha256 is None or engine.bytes is None:
            raise ValueError("the engine has no SHA-256 or no size")
        data = memoryview(fetch(engine.sha256, engine.bytes))
        if len(data) != engine.bytes:
            raise ValueError(f"the engine has {len(data)} bytes, not {engine.bytes}")
        intact(data, engine.sha256, "the result")
        engine = EngineIdentity(str(build.request.engine_path), engine.sha256, len(data), tactics=engine.tactics)
    current = as_kept(template, old)
    report = dataclasses.replace(
        current, engine=engine, worker=worker, seconds=old.seconds, exit_code=old.exit_code, up_to_date=False
    )
    return Built(report, data, result.then)


def _check_runtime(build: Build, runtime: RuntimeIdentity) -> None:
    """Raises ValueError where a TensorRT is not one that can have built for what was asked."""
    family, version, target = runtime.family, runtime.version, build.request.target
    if (
        not re.fullmatch(r"\d{1,6}(\.\d{1,9}){0,5}", version)
        or int(version.split(".")[0]) not in FAMILIES[family].majors
    ):
        raise ValueError(f"there is no {family} {version[:40]!r}")
    if build.job.version not in (None, version) or (target is not None and not target.fits(family, version)):
        raise ValueError(f"it was built by {family} {version}, which was not asked for")


def _check_profiles(template: BuildReport, old: BuildReport) -> None:
    """Raises ValueError where an engine has not the profiles that were asked for.

    Rounding and splitting, which take the network's lattice, are not done again: only their frame is looked at.
    """
    plan, profiles = template.plan, old.profiles
    if plan.asked is None:
        if profiles != plan.profiles:
            raise ValueError("it has other profiles than were asked for")
        return
    if not profiles or (plan.split is None and len(profiles) != len(plan.asked)):
        raise ValueError("it has more or fewer profiles than were asked for")
    for profile in profiles:
        frame = plan.asked[0]
        if profile.inputs.keys() != frame.inputs.keys() or profile.dims.keys() != frame.dims.keys():
            raise ValueError("it has a profile of other inputs")
        if any(len(profile.inputs[name].max) != len(own.max) for name, own in frame.inputs.items()):
            raise ValueError("it has a profile of other ranks")
