"""Builds on a batch system: jobs as files, an array of tasks for each target, and results out of a shared folder."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from trtconv.core.documents.farm import worker_of
from trtconv.core.errors import EnvironmentMissing, InputError, TrtconvError
from trtconv.core.files import atomic_write
from trtconv.core.frozen import frozen
from trtconv.core.process import SystemProgram
from trtconv.core.reading import read_plain
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import FarmRequest
from trtconv.core.text import clean
from trtconv.engine.farm.code import arguments
from trtconv.engine.farm.job import contents
from trtconv.engine.farm.planning import prepare
from trtconv.engine.farm.store import RESULT, Store
from trtconv.pipeline.batch import Request, Result, failed_run

FOLDER = Path("trtconv-slurm")
"""Where jobs, results and logs lie where no --store says another one."""
_POLL_SECONDS = 0.5
_GRACE_SECONDS = 10.0
"""How long a result may take to be seen after its task ended: folders of a network show files late."""
_ALL_GPUS = "--gres=gpu:1"
_SCRIPT = """#!/bin/sh
# The label and the job of this task, each a line of a list.
sed -n "${{SLURM_ARRAY_TASK_ID}}p" {labels}
exec {python} -I -m trtconv run-job "$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {jobs})" {out}{code}
"""


_Task = tuple[int, BuildRequest, str]


@frozen
class _Array:
    """The tasks for one target.

    Args:
        target: As it is written.
        tasks: Number of each request, the request, and the name of its job.
        program: The sbatch that waits for them.
        logs: Folder of a log for each task, JOB_TASK.log.
    """

    target: str
    tasks: tuple[_Task, ...]
    program: SystemProgram
    logs: Path


class Slurm:
    """Builds by Slurm's sbatch.

    Args:
        request: What is done with the engines, the shared folder, and more arguments for sbatch.

    Raises:
        EnvironmentMissing: There is no sbatch here.
    """

    def __init__(self, request: FarmRequest) -> None:
        if shutil.which("sbatch") is None:
            raise EnvironmentMissing("there is no sbatch here", "Run it where jobs of Slurm are submitted.")
        self._then, self._arguments = request.then, request.sbatch
        self._folder = (request.store or FOLDER).absolute()
        self._jobs, self._out = Store(self._folder / "jobs"), Store(self._folder / "out")
        self._arrays: list[_Array] = []

    def close(self) -> None:
        """Ends what still runs."""
        for array in self._arrays:
            number = _number(array)
            if number and array.program.status() is None:
                _cancel(number)
            array.program.close()
        self._arrays.clear()

    def run(self, requests: Sequence[Request]) -> Generator[tuple[int, Result], None, None]:
        """Builds; yields each request's number and result, as they come."""
        by_target: dict[str, list[_Task]] = {}
        try:
            for index, request in enumerate(requests):
                assert isinstance(request, BuildRequest)
                prepared = self._prepare(request)
                if isinstance(prepared, str):
                    by_target.setdefault(str(request.target or "auto"), []).append((index, request, prepared))
                else:
                    yield index, prepared
            for target, tasks in by_target.items():
                self._arrays.append(self._submit(target, tuple(tasks)))
            for array in list(self._arrays):
                yield from self._results(array)
        finally:
            self.close()

    def _prepare(self, request: BuildRequest) -> str | Result:
        """Writes a job with its files; returns its name, or the result where there is one already."""
        try:
            waiting, report = prepare(request, None, self._then)
            if report is not None:
                return report
            assert waiting is not None
            for path in contents(waiting.job, request.model).values():
                self._jobs.put(read_plain(path))
            self._jobs.put_job(waiting.job.name, waiting.job.to_json())
            if request.force or self._out.answer(waiting.job.name, self._then) is None:
                # What failed before is no result of this call.
                (self._out.root / f"{waiting.job.name}{RESULT}").unlink(missing_ok=True)
            return waiting.job.name
        except TrtconvError as error:
            return failed_run(request, error)
        except OSError as error:
            return failed_run(request, InputError(f"{request.model} cannot be read: {error.strerror or error}"))

    def _submit(self, target: str, tasks: tuple[_Task, ...]) -> _Array:
        """Submits an array of tasks, one a build."""
        name = f"trtconv-{clean(target).replace('/', '-')}"
        logs = self._folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        jobs, labels, script = (self._folder / f"{name}.{kind}" for kind in ("jobs", "labels", "sh"))
        paths = [self._jobs.root / f"{job}.json" for _, _, job in tasks]
        lines = [clean(f"{request.model.name} for {target}: job {job}") for _, request, job in tasks]
        atomic_write(jobs, "".join(f"{path}\n" for path in paths).encode())
        atomic_write(labels, "".join(f"{line}\n" for line in lines).encode())
        places = {"labels": labels, "jobs": jobs, "out": self._out.root, "python": sys.executable}
        # The nodes see the files of this machine, or say that they do not.
        code = "".join(f" {shlex.quote(word)}" for word in arguments([request for _, request, _ in tasks]))
        text = _SCRIPT.format(**{key: shlex.quote(str(path)) for key, path in places.items()}, code=code)
        atomic_write(script, text.encode())
        command = ["sbatch", "--parsable", "--wait", f"--array=1-{len(tasks)}", f"--job-name={name}"]
        command += [f"--output={logs}/%A_%a.log", *self._resources(target), str(script)]
        return _Array(target, tasks, SystemProgram(command), logs)

    def _resources(self, target: str) -> Iterator[str]:
        """Yields the arguments that a target's tasks are submitted with."""
        texts = [text for text in self._arguments if text.startswith("-")]
        texts += [text[len(target) + 1 :] for text in self._arguments if text.startswith(f"{target}=")]
        for text in texts or [_ALL_GPUS]:
            yield from shlex.split(text)

    def _results(self, array: _Array) -> Iterator[tuple[int, Result]]:
        """Yields the results of an array as they are there, and rows for those that do not come."""
        entries = list(enumerate(array.tasks, 1))
        ended = None
        while entries:
            for entry in list(entries):
                _, (index, request, job) = entry
                document = self._out.result(job)
                if document is not None:
                    entries.remove(entry)
                    yield index, self._take(request, job, document)
            if array.program.status() is not None:
                ended = ended or time.monotonic()
                if not _number(array) or time.monotonic() - ended > _GRACE_SECONDS:
                    break
            time.sleep(_POLL_SECONDS * bool(entries))
        for task, (index, request, _) in entries:
            yield index, failed_run(request, _missing(array, task))

    def _take(self, request: BuildRequest, job: str, document: object) -> Result:
        try:
            # The model was not kept in memory meanwhile.
            waiting, report = prepare(request, None, self._then)
            if report is not None:
                return report
            assert waiting is not None
            if waiting.job.name != job:
                raise InputError(f"{request.model} was changed while it was built", "Build it again.")
            return waiting.take(document, self._out.get, worker_of(document))
        except TrtconvError as error:
            return failed_run(request, error)


def _cancel(number: str) -> None:
    """Ends the tasks of an array; where there is no scancel they end by themselves."""
    with contextlib.suppress(OSError), contextlib.closing(SystemProgram(["scancel", number])) as ending:
        while ending.status() is None:
            time.sleep(_POLL_SECONDS)


def _number(array: _Array) -> str:
    """Returns the number that sbatch gave an array; empty where it gave none."""
    number = array.program.output().partition("\n")[0].partition(";")[0].strip()
    return number if number.isdecimal() else ""


def _missing(array: _Array, task: int) -> EnvironmentMissing:
    number = _number(array)
    if not number:
        return EnvironmentMissing(
            f"sbatch refused the tasks for {array.target}: {array.program.output()}", "See --sbatch."
        )
    log = array.logs / f"{number}_{task}.log"
    return EnvironmentMissing(f"task {number}_{task} of Slurm ended without a result", f"{log} says why.")
