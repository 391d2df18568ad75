"""`trtconv run-job`."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.timing_folder import timing_folder
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.reading import DOCUMENT_BYTES, read_plain
from trtconv.core.text import clean, indented

if TYPE_CHECKING:
    from trtconv.engine.farm.code import HeldCode
    from trtconv.engine.farm.job import BuildJob


@click.command(
    "run-job",
    cls=Command,
    epilog="""\b
Examples:
    trtconv run-job jobs/NAME.json out
  All of them on Slurm, a task each:
    ls jobs/*.json > list && sbatch --gres=gpu:1 --array=1-$(wc -l < list) --wrap \\
      'trtconv run-job $(sed -n ${SLURM_ARRAY_TASK_ID}p list) out'

\b
Exit status: 0 built, or built before; 1 the model failed; 2 no job, or files are missing; 4 not for this machine.
""",
)
@click.argument("job", metavar="JOB.json")
@click.argument("out", metavar="OUT")
@click.option("--gpu", metavar="NAME", help="What the GPU here is called in targets, in place of its own name.")
@options.code_options
@options.format_option("text", "json")
@options.quiet_anyway
def command(job: str, out: str, gpu: str | None, load_code: Callable[[], HeldCode], output_format: str) -> Outcome:
    """Build one job that plan --write made.

    JOB.json lies in the folder that plan wrote, which has its files. The result goes into the folder OUT, as many as
    there are jobs; trtconv collect takes them in where trtconv.toml is. A job that OUT has the engine of is done.
    """
    from trtconv.cli.formats.json import render
    from trtconv.core.decode import decoded
    from trtconv.core.documents.farm import Followed
    from trtconv.engine.farm.machines import choose
    from trtconv.engine.farm.running import JobRunner
    from trtconv.engine.farm.store import Store
    from trtconv.engine.farm.worker import keep, look, offered

    path = Path(job)
    build_job = _job(path)
    store = Store(Path(out))
    before = store.answer(build_job.name, build_job.then)
    if before is not None:
        outcome = clean(f"{out} has the result of {build_job.name}")
        return Outcome(render({**before.to_json(), "exit_code": 0}) if output_format == "json" else outcome)
    machine = look(gpu)
    choice = choose(build_job.target, [machine])
    if choice is None or build_job.version not in (None, choice.version):
        raise EnvironmentMissing(
            f"{job} is for {build_job.target or 'auto'}, and there is {offered(machine)}", "Run it there."
        )
    runner = JobRunner(timing_folder(), load_code())
    try:
        result, engine = runner.run(build_job, Store(path.parent).get)
    finally:
        runner.close()
    result = dataclasses.replace(result, worker=socket.gethostname())
    keep(store, result, engine)
    failed = result.error
    codes = [decoded(Followed, fields).exit_code for fields in (result.report or {}, *result.then.values()) if fields]
    code = max(codes, default=0) if failed is None else failed.exit_code
    if output_format == "json":
        return Outcome(render({**result.to_json(), "exit_code": code}), code)
    outcome = failed.message if failed else f"{'built' if engine else 'no engine for'} {build_job.target or 'auto'}"
    lines = indented(f"{build_job.name}: {outcome}", "  ", "")
    hint = indented(f"hint: {failed.hint}", "  ", "  ") if failed and failed.hint else []
    return Outcome("\n".join([*lines, *hint]), code)


def _job(path: Path) -> BuildJob:
    """Reads a job.

    Raises:
        InputError: It cannot be read, or is not as plan --write made it.
        EnvironmentMissing: Another version of trtconv made it.
    """
    from trtconv.engine.farm.job import BuildJob

    try:
        text = read_plain(path, DOCUMENT_BYTES)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", "Give a job of plan --write.") from error
    try:
        job = BuildJob.read(text)
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.hint) from error
    if job.name != path.stem:
        raise InputError(f"{path} was changed: what it says has the name {job.name}", "Plan again.")
    return job
