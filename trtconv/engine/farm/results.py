"""Takes what became of a job. It comes from elsewhere: nothing of it is believed that can be checked here."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from trtconv.core.decode import decoded
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import FailedRun
from trtconv.core.documents.farm import Followed
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write
from trtconv.core.reading import read_plain
from trtconv.core.requests.build import BuildRequest
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.text import clean
from trtconv.engine.farm.acceptance import Broken, Built, Fetch, accepted
from trtconv.engine.farm.job import BuildJob, contents
from trtconv.engine.farm.store import Store
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.batch import worst_exit_code
from trtconv.pipeline.outputs import write_engine
from trtconv.runtimes.tensorrt import EngineBlob


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
        self, document: Any, fetch: Fetch, worker: str | None, then: Collection[str] | None = None
    ) -> BuildReport | FailedRun:
        """Writes the engine, its report and what was measured, each whole or not at all, where all of it is right.

        Args:
            document: The result.
            fetch: Returns the engine.
            worker: Who made it.
            then: What of verify and bench is wanted; None: what the job says. The rest is nobody's.

        Returns:
            The report, as a build here would return it.

        Raises:
            InputError: The result is not of this job, or a file cannot be written.
        """
        came = accepted(self, document, fetch, worker, self.job.then if then is None else then)
        return self._broken(came, worker) if isinstance(came, Broken) else self._take_build(came, worker)

    def _broken(self, came: Broken, worker: str | None) -> FailedRun:
        error, hint = came.error, came.error.hint
        if came.log:
            hint = f"{hint} {crash_folder(self, came.log)} has the log and all that is needed to repeat it.".strip()
        failed = self.failed(error.message, hint, worker, clean(error.type))
        return dataclasses.replace(failed, exit_code=error.exit_code)

    def _take_build(self, came: Built, worker: str | None) -> BuildReport | FailedRun:
        report = came.report
        beside = {kind: self.request.beside(kind) for kind in came.then}
        for output in beside.values():
            output.check()
        after = {
            kind: json.dumps(_here(document, self.request), indent=2) + "\n" for kind, document in came.then.items()
        }
        blob = None if came.engine is None else EngineBlob(came.engine, ())
        if blob is not None or self.request.report is not None:
            report = write_engine(self.request, report, blob, Stopwatch(None))
        for kind, text in after.items():
            atomic_write(beside[kind].path, text.encode())
        outcomes = {kind: decoded(Followed, document) for kind, document in came.then.items()}
        bad = {kind: outcome for kind, outcome in outcomes.items() if outcome.exit_code}
        if not bad:
            return report
        kind, outcome = next(iter(bad.items()))
        why = outcome.why or f"{beside[kind].path.name} says why"
        failed = self.failed(f"built, but {kind} failed: {why}", "", worker, "EngineFailed")
        return dataclasses.replace(failed, exit_code=worst_exit_code([outcome.exit_code for outcome in bad.values()]))


def _here(document: Mapping[str, Any], request: BuildRequest) -> Mapping[str, Any]:
    """Returns what verify or bench found, with the paths of this machine."""
    paths = {"model": str(request.model), "engine": str(request.engine_path)}
    moved = dict(document)
    for key, value in document.items():
        if key in paths and isinstance(value, dict):
            moved[key] = {**value, "path": paths[key]}
        elif key == "engines" and isinstance(value, list):
            moved[key] = [{**entry, "path": paths["engine"]} for entry in value if isinstance(entry, dict)]
    return moved


def crash_folder(waiting: Waiting, log: str) -> str:
    """Writes what it takes to see a job break down again: the job with its files, and the end of the log.

    Returns:
        The folder; "nothing" where none can be written.
    """
    with contextlib.suppress(OSError, InputError):
        folder = Path(tempfile.mkdtemp(prefix="trtconv-crash-"))
        store = Store(folder)
        for path in contents(waiting.job, waiting.request.model).values():
            store.put(read_plain(path))
        job = store.put_job(waiting.job.name, waiting.job.to_json())
        atomic_write(folder / "log.txt", (log + "\n").encode(errors="backslashreplace"))
        rerun = f'#!/bin/sh\ncd "$(dirname "$0")" && exec trtconv run-job {job.name} again\n'
        atomic_write(folder / "rerun.sh", rerun.encode())
        return str(folder)
    return "nothing"
