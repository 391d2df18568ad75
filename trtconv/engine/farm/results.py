"""Takes what became of a job. It comes from elsewhere: nothing of it is believed that can be checked here."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import FailedRun
from trtconv.core.documents.forms import CHECKSUM, checked_report, fits
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import AFTERWARDS
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.text import clean
from trtconv.engine.farm.job import BuildJob, contents
from trtconv.engine.farm.store import Store, intact
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.building import planned
from trtconv.pipeline.outputs import asked_identity, identity, write_engine
from trtconv.runtimes.tensorrt import Capabilities, EngineBlob, RuntimeInfo

_ERROR = {"type": str, "message": str, "hint": str, "exit_code": int}
_FORM = {
    "schema": int,
    "job": str,
    "report": ({str: object}, type(None)),
    "error": (_ERROR, type(None)),
    "then": {str: {"exit_code": int}},
    "log": str,
}
_HINT = "Build it again, or on another machine."
_UNKNOWN = (KeyError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What JSON of the wrong form makes go wrong."""


@dataclasses.dataclass
class Waiting:
    """A build that is done elsewhere.

    Args:
        request: What was asked.
        job: The same, as data.
        model: Its model, as it was loaded.
    """

    request: BuildRequest
    job: BuildJob
    model: OnnxModel

    def failed(self, message: str, hint: str = "", worker: str | None = None, kind: str = "BuildFailed") -> FailedRun:
        """Returns what stands for a build that came to nothing, with exit code 1."""
        return FailedRun(str(self.request.model), str(self.request.target or "auto"), kind, message, hint, 1, worker)

    def take(
        self, document: Any, fetch: Callable[[str], bytes | memoryview], worker: str | None
    ) -> BuildReport | FailedRun:
        """Writes the engine, its report and what was measured, each whole or not at all.

        Args:
            document: The result.
            fetch: Returns the engine with a SHA-256.
            worker: Who made it.

        Returns:
            The report, as a build here would return it.

        Raises:
            InputError: The result is not of this job, or a file cannot be written.
        """
        if not fits(document, _FORM) or not document.keys() >= _FORM.keys() or document["job"] != self.job.name:
            raise InputError(f"what came back for {self.request.model} is not its result", _HINT)
        try:
            if document["error"] is not None or document["report"] is None:
                return self._broken(document, worker)
            return self._built(document, fetch, worker)
        except _UNKNOWN as error:
            raise InputError(f"what came back for {self.request.model} is no result: {error!r}", _HINT) from error

    def _broken(self, document: Mapping[str, Any], worker: str | None) -> FailedRun:
        error = document["error"] or {"type": "BuildFailed", "message": "nothing came back", "hint": "", "exit_code": 1}
        hint = error["hint"]
        if document["log"]:
            hint = f"{hint} {crash_folder(self, document)} has the log and all that is needed to repeat it.".strip()
        code = error["exit_code"] if error["exit_code"] in (1, 2, 3, 4) else 1
        return dataclasses.replace(self.failed(error["message"], hint, worker, clean(error["type"])), exit_code=code)

    def _built(
        self, document: Mapping[str, Any], fetch: Callable[[str], bytes | memoryview], worker: str | None
    ) -> BuildReport | FailedRun:
        old = checked_report(document["report"])
        asked = as_told(self.request, self.model, old)
        known = self.job.version in (None, old["runtime"]["version"])
        if CHECKSUM not in old or not known or identity(old) != asked_identity(asked):
            raise InputError(f"what came back for {self.request.model} is of another build", _HINT)
        then = {kind: found for kind, found in document["then"].items() if kind in AFTERWARDS}
        code = next(
            (c for c in (3, 2, 4, 1) if c in [old["exit_code"], *(each["exit_code"] for each in then.values())]), 0
        )
        path, data = self.request.engine_path, None
        engine = None
        if old["engine"] is not None:
            data = intact(fetch(old["engine"]["sha256"]), old["engine"]["sha256"], "the result")
            engine = {"path": str(path), "sha256": old["engine"]["sha256"], "bytes": len(data)}
        kept = dataclasses.replace(asked.kept({**old, "engine": engine, "worker": worker}), up_to_date=False)
        report = dataclasses.replace(kept, seconds=old["seconds"], exit_code=code)
        blob = None if data is None else EngineBlob(memoryview(data), ())
        if blob is not None or self.request.report is not None:
            report = write_engine(self.request, report, blob, Stopwatch(None))
        for kind, found in then.items():
            atomic_write(beside(path, kind), (json.dumps(_here(found, self.request), indent=2) + "\n").encode())
        bad = [kind for kind, found in then.items() if found["exit_code"]]
        if not bad:
            return report
        why = (then[bad[0]].get("error") or {}).get("message") or f"{beside(path, bad[0]).name} says why"
        failed = self.failed(f"built, but {bad[0]} failed: {why}", "", worker, "EngineFailed")
        return dataclasses.replace(failed, exit_code=code)


def as_told(request: BuildRequest, model: OnnxModel, report: Mapping[str, Any]) -> BuildReport:
    """Returns the report that a build begins with where the TensorRT is the one that a report tells of."""
    runtime, cast_by = report["runtime"], dict(report["plan"].get("cast_by") or {})
    unknown = dict.fromkeys(Capabilities.__dataclass_fields__, False)
    capabilities = Capabilities(**{**unknown, "builder_precision_flags": not cast_by})
    info = RuntimeInfo(runtime["family"], runtime["version"], runtime["gpu"], capabilities)
    return planned(request, model, info, cast_by)


def beside(engine: Path, kind: str) -> Path:
    """Returns where what verify or bench found of an engine lies."""
    return engine.with_name(f"{engine.name}.{kind}.json")


def _here(document: dict[str, Any], request: BuildRequest) -> dict[str, Any]:
    """Returns what verify or bench found, with the paths of this machine."""
    paths = {"model": str(request.model), "engine": str(request.engine_path)}
    for key, path in paths.items():
        if isinstance(document.get(key), dict):
            document = {**document, key: {**document[key], "path": path}}
    if isinstance(document.get("engines"), list):
        engines = [{**each, "path": paths["engine"]} for each in document["engines"] if isinstance(each, dict)]
        document = {**document, "engines": engines}
    return document


def crash_folder(waiting: Waiting, document: Mapping[str, Any]) -> str:
    """Writes what it takes to see a job break down again: the job with its files, and the end of the log.

    Returns:
        The folder; "nothing" where none can be written.
    """
    with contextlib.suppress(OSError, InputError):
        folder = Path(tempfile.mkdtemp(prefix="trtconv-crash-"))
        store = Store(folder)
        for path in contents(waiting.job, waiting.model).values():
            store.put(path.read_bytes())
        job = store.put_job(waiting.job.name, waiting.job.to_json())
        atomic_write(folder / "log.txt", (document["log"] + "\n").encode(errors="backslashreplace"))
        rerun = f'#!/bin/sh\ncd "$(dirname "$0")" && exec trtconv run-job {job.name} again\n'
        atomic_write(folder / "rerun.sh", rerun.encode())
        return str(folder)
    return "nothing"
