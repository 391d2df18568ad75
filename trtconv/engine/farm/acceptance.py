"""Holds what came back for a job against what was asked, field by field, before any of it is written."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.saved import saved
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import AFTERWARDS
from trtconv.core.target import FAMILIES
from trtconv.engine.farm.forms import fits
from trtconv.engine.farm.job import BuildJob
from trtconv.engine.farm.store import intact
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.building import planned
from trtconv.pipeline.outputs import as_kept, identity
from trtconv.runtimes.tensorrt import Capabilities, RuntimeInfo

Fetch = Callable[[str, int], bytes | memoryview]
"""Returns the file with a SHA-256 and a size in bytes."""

HINT = "Build it again, or on another machine."
_CODES = range(5)
_MOST_SECONDS = 1e8
_ERROR = {"type": str, "message": str, "hint": str, "exit_code": int}
_FORM = {
    "schema": int,
    "job": str,
    "report": ({str: object}, type(None)),
    "error": (_ERROR, type(None)),
    "then": {str: {"exit_code": int}},
    "log": str,
}
_TOLD = {*_FORM, "worker"}
_UNKNOWN = (KeyError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What JSON of the wrong form makes go wrong."""


class Build(Protocol):
    """A build that is done elsewhere: what was asked, the same as data, and its model."""

    request: BuildRequest
    job: BuildJob
    model: OnnxModel


@frozen
class Broken:
    """A job that came to nothing: the error, as JSON, and the end of the log."""

    error: Mapping[str, Any]
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
    then: Mapping[str, dict[str, Any]]


def accepted(build: Build, document: Any, fetch: Fetch, worker: str | None) -> Broken | Built:
    """Returns what is said of a job.

    Args:
        build: What was asked.
        document: The result.
        fetch: Returns the engine.
        worker: Who made it.

    Raises:
        InputError: It is not the result of this job, or says what cannot be.
    """
    if not fits(document, _FORM) or not _FORM.keys() <= document.keys() <= _TOLD or document["job"] != build.job.name:
        raise InputError(f"what came back for {build.request.model} is not its result", HINT)
    try:
        _hold_together(document)
        if document["error"] is not None:
            return Broken(document["error"], document["log"])
        return _built(build, document, fetch, worker)
    except _UNKNOWN as error:
        raise InputError(f"what came back for {build.request.model} is no result: {error!r}", HINT) from error


def as_told(request: BuildRequest, model: OnnxModel, report: BuildReport) -> BuildReport:
    """Returns the report that a build begins with where the TensorRT is the one that a report tells of."""
    runtime, cast_by = report.runtime, report.plan.cast_by
    unknown = dict.fromkeys(Capabilities.__dataclass_fields__, False)
    capabilities = Capabilities(**{**unknown, "builder_precision_flags": not cast_by})
    info = RuntimeInfo(runtime.family, runtime.version, runtime.gpu, capabilities)
    return planned(request, model, info, cast_by)


def _hold_together(document: Mapping[str, Any]) -> None:
    """Raises ValueError where the parts of a result contradict each other."""
    report, error, then = document["report"], document["error"], document["then"]
    if (report is None) == (error is None):
        raise ValueError("it is neither a report nor an error, or both")
    if error is not None and error["exit_code"] not in _CODES[1:]:
        raise ValueError(f"an error has no exit code {error['exit_code']}")
    if not then.keys() <= set(AFTERWARDS):
        raise ValueError("something else followed than verify and bench")
    if any(found["exit_code"] not in _CODES for found in then.values()):
        raise ValueError("what followed has an exit code that there is not")
    if report is None:
        if then:
            raise ValueError("nothing can follow what was not built")
        return
    # As pipeline.build has it: 1 and no engine, or an engine and 0.
    if (report["exit_code"], report["engine"] is None) not in ((0, False), (1, True)):
        raise ValueError(f"exit code {report['exit_code']} does not go with {'no' * (not report['engine'])} engine")
    if then and report["engine"] is None:
        raise ValueError("nothing can follow what was not built")


def _built(build: Build, document: Mapping[str, Any], fetch: Fetch, worker: str | None) -> Built:
    came = saved(build.request.report_path, document["report"])
    old = came.report
    _check_runtime(build, old.runtime)
    asked = as_told(build.request, build.model, old)
    if not came.is_intact or identity(old) != identity(asked):
        raise InputError(f"what came back for {build.request.model} is of another build", HINT)
    _check_profiles(asked, old)
    if not all(0 <= each < _MOST_SECONDS for each in old.seconds.values()):
        raise ValueError("it took a time that nothing takes")
    engine, data = old.engine, None
    if engine is not None:
        if engine.sha256 is None or engine.bytes is None:
            raise ValueError("the engine has no SHA-256 or no size")
        data = memoryview(fetch(engine.sha256, engine.bytes))
        if len(data) != engine.bytes:
            raise ValueError(f"the engine has {len(data)} bytes, not {engine.bytes}")
        intact(data, engine.sha256, "the result")
        engine = FileIdentity(str(build.request.engine_path), engine.sha256, len(data))
    kept = as_kept(asked, old)
    report = dataclasses.replace(
        kept, engine=engine, worker=worker, seconds=old.seconds, exit_code=old.exit_code, up_to_date=False
    )
    return Built(report, data, document["then"])


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


def _check_profiles(asked: BuildReport, old: BuildReport) -> None:
    """Raises ValueError where an engine has not the profiles that were asked for.

    Rounding and splitting, which take the network's lattice, are not done again: only their frame is looked at.
    """
    plan, found = asked.plan, old.profiles
    if plan.asked is None:
        if found != plan.profiles:
            raise ValueError("it has other profiles than were asked for")
        return
    if not found or (plan.split is None and len(found) != len(plan.asked)):
        raise ValueError("it has more or fewer profiles than were asked for")
    for profile in found:
        frame = plan.asked[0]
        if profile.inputs.keys() != frame.inputs.keys() or profile.dims.keys() != frame.dims.keys():
            raise ValueError("it has a profile of other inputs")
        if any(len(profile.inputs[name].max) != len(own.max) for name, own in frame.inputs.items()):
            raise ValueError("it has a profile of other ranks")
