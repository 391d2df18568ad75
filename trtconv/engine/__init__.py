"""What is done with a built engine: verify, bench, inspect, run.

The functions here are what a caller sees. Each hands its request to a process of its own (`trtconv.core.process`),
where the module of the same name does the work: loading an engine runs code that is in it, may crash, and may hang.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from pathlib import Path
from typing import Any

from trtconv.core.documents.engine import BenchReport, VerifyReport
from trtconv.core.encode import SCHEMA
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError, TrtconvError
from trtconv.core.process import Lost, WorkerBug, call
from trtconv.core.progress import NullProgress, Progress
from trtconv.core.requests.engine import BenchRequest, InspectRequest, RunRequest, VerifyRequest


class _Hearing:
    """Hears what the worker tells: keeps cases and rows, and passes stages on to the progress."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress or NullProgress()
        self._stage = contextlib.ExitStack()
        self.doing = "start"
        self.opening: dict[str, Any] | None = None
        self.cases: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.ratios: list[dict[str, Any]] = []
        self.why = ""
        self.layers = 0
        self.disagreements: list[dict[str, str]] | None = None
        self.unproven: list[dict[str, str]] = []

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "stage":
            self.doing = event["name"]
            self._stage.close()
            self._stage.enter_context(self._progress.stage(event["name"]))
        elif event["event"] == "opening":
            self.opening = event["value"]
        elif event["event"] == "case":
            self.cases.append(event["value"])
            self._progress.phase(event["value"]["size"], len(self.cases), 0)
        elif event["event"] == "self_check":
            self.disagreements = event["value"]
        elif event["event"] == "layers":
            self.layers = event["count"]
            self.unproven = event["unproven"]
        elif event["event"] == "rows":
            self.rows += event["rows"]
            self.ratios += event["ratios"]
            self.why = self.why or event["why"]
            self._progress.phase("size", len(self.rows), 0)

    def close(self) -> None:
        self._stage.close()


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
    started = time.monotonic()
    hearing = _Hearing(progress)
    seconds: dict[str, float] = {}
    incomplete = ""
    try:
        seconds = call("trtconv.engine.verifying:serve", request, request.seconds, hearing)
    except Lost as lost:
        if hearing.opening is None or lost.cause == "memory":
            raise _lost(lost, f"reading {request.model} and its engine", request.seconds) from lost
        if lost.cause != "time" and hearing.doing == "engine":
            raise _crashed(lost, hearing) from lost
        incomplete = f"{hearing.doing}: {lost.why}"
    finally:
        hearing.close()
    seconds = {**seconds, "total": time.monotonic() - started}
    assert hearing.opening is not None
    report = VerifyReport(
        **hearing.opening,
        cases=tuple(hearing.cases),
        seconds=seconds,
        layers=hearing.layers,
        unproven=tuple(hearing.unproven),
        self_check=None if hearing.disagreements is None else tuple(hearing.disagreements),
    )
    report = dataclasses.replace(report, incomplete=incomplete or _left_out(hearing))
    left = request.seconds - (time.monotonic() - started)
    if request.bisect and report.exit_code == 1:
        return dataclasses.replace(report, bisect=_bisect(request, report, left, progress))
    return report


def bench(request: BenchRequest, progress: Progress | None = None) -> BenchReport:
    """Times an engine, or two in turns.

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
    started = time.monotonic()
    hearing = _Hearing(progress)
    seconds: dict[str, float] = {}
    try:
        seconds = call("trtconv.engine.benching:serve", request, request.seconds, hearing)
    except Lost as lost:
        if hearing.opening is None or lost.cause != "time":
            raise _lost(lost, f"running {request.engine}", request.seconds) from lost
        hearing.why = lost.why
    finally:
        hearing.close()
    assert hearing.opening is not None
    seconds = {**seconds, "total": time.monotonic() - started}
    rows, ratios = tuple(hearing.rows), tuple(hearing.ratios)
    return BenchReport(**hearing.opening, rows=rows, ratios=ratios, seconds=seconds, incomplete=hearing.why)


def inspect(request: InspectRequest, progress: Progress | None = None) -> dict[str, Any]:
    """Looks into an engine, the report of one, or an ONNX file.

    An engine is loaded only where it is the one that its report tells of, or is trusted; where it cannot be loaded
    here, what the report knows of it is returned, and why.

    Args:
        request: The file.
        progress: Told of the stages.

    Returns:
        The JSON document; docs/reports.md has its keys.

    Raises:
        InputError: The file cannot be read, or is not the engine of its report.
        EnvironmentMissing: The engine has no report, and cannot be loaded here.
        EngineFailed: TensorRT does not load the engine.
    """
    return _document("trtconv.engine.inspecting:serve", request, f"reading {request.path}", progress)


def run(request: RunRequest, progress: Progress | None = None) -> dict[str, Any]:
    """Runs an engine once, with inputs of a file, and writes its outputs into another.

    Args:
        request: The engine and the files.
        progress: Told of the stages.

    Returns:
        The JSON document; docs/reports.md has its keys.

    Raises:
        InputError: A file cannot be read or written, or the inputs do not fit the engine.
        EnvironmentMissing: There is no GPU, or the engine was built for another TensorRT or GPU.
        EngineFailed: TensorRT does not load or run the engine.
    """
    for flag, path in (("--inputs", request.inputs), ("-o", request.output)):
        if path is None:
            raise InputError(f"{flag} is missing", "Write: trtconv run ENGINE --inputs IN.npz -o OUT.npz.")
    return _document("trtconv.engine.running:serve", request, f"running {request.engine}", progress)


def _document(task: str, request: InspectRequest | RunRequest, what: str, progress: Progress | None) -> dict[str, Any]:
    """Returns the document of what one process, of its own, finds; `what` says what it does."""
    hearing = _Hearing(progress)
    try:
        found: dict[str, Any] = call(task, request, request.seconds, hearing)
    except Lost as lost:
        raise _lost(lost, what, request.seconds) from lost
    finally:
        hearing.close()
    return {"schema": SCHEMA, **found, "exit_code": 0}


def _left_out(hearing: _Hearing) -> str:
    """Says which sizes were not compared that had to be."""
    skipped = [c for c in hearing.cases if c["skipped"] and not c["size"].startswith("random")]
    if skipped:
        return f"{skipped[0]['size']} of profile {skipped[0]['profile']}: {skipped[0]['skipped']}"
    return "" if hearing.cases else "there was nothing to compare"


def _bisect(request: VerifyRequest, report: VerifyReport, seconds: float, progress: Progress | None) -> dict[str, Any]:
    """Looks for the first tensor that diverges; a failure of the search is no failure of the verification."""
    hearing = _Hearing(progress)
    failed = [case for case in report.cases if case["passed"] is False and case["outputs"]]
    if not failed or seconds < 1:
        why = "no output could be compared" if not failed else "no time is left"
        return {"tensor": None, "why": why}
    smallest = min(failed, key=lambda case: sum(math.prod(shape) for shape in case["shapes"].values()))
    # It was chosen once.
    request = request if report.engine is None else dataclasses.replace(request, engine=Path(report.engine["path"]))
    known = {"case": smallest, "ran": report.ran, "tolerance": report.tolerance}
    try:
        found: dict[str, Any] = call("trtconv.engine.bisecting:serve", (request, known), seconds, hearing)
    except (Lost, TrtconvError) as error:
        return {"tensor": None, "why": f"the search failed: {error}"}
    except WorkerBug as bug:
        return {"tensor": None, "why": f"the search failed: {bug.summary} (a bug in trtconv)"}
    finally:
        hearing.close()
    return found


def _lost(lost: Lost, doing: str, seconds: float) -> Exception:
    if lost.cause == "time":
        return EnvironmentMissing(f"{doing} took longer than {seconds:g} s", "Give it more time: --time-limit.")
    if lost.cause == "memory":
        return EnvironmentMissing(f"{doing}: out of memory", "Use smaller sizes.")
    said = f"\n{lost.said}" if lost.said else ""
    return EngineFailed(f"{doing} ended its process ({lost.why}){said}")


def _crashed(lost: Lost, hearing: _Hearing) -> EngineFailed:
    done = len(hearing.cases)
    said = f"\n{lost.said}" if lost.said else ""
    return EngineFailed(f"the engine ended its process ({lost.why}) after {done} sizes{said}", "Build it again.")


__all__ = [
    "BenchReport",
    "BenchRequest",
    "InspectRequest",
    "VerifyReport",
    "VerifyRequest",
    "bench",
    "inspect",
    "verify",
]
