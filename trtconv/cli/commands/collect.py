"""`trtconv collect`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtconv.cli import options
from trtconv.cli.commands.many import ManyFlags, agreed_builds, outcome_of, whole
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.core.errors import InputError

if TYPE_CHECKING:
    from trtconv.core.requests.build import BuildRequest
    from trtconv.engine.farm.store import Store
    from trtconv.pipeline.batch import Result


@click.command(
    "collect",
    cls=Command,
    epilog="""\b
Examples:
    trtconv collect out
  From several machines:
    trtconv collect from-h100 from-l4 --format json

\b
Exit status: 0 every engine of trtconv.toml is there; 1 a model failed; 2 a model cannot be read; 4 results are missing.
""",
)
@click.argument("folders", metavar="OUT...", nargs=-1, required=True)
@options.format_option("text", "json")
@options.agree_option
@options.many_options
def command(folders: tuple[str, ...], agree: tuple[str, ...], **many: Any) -> Outcome:
    """Take in the engines that run-job built.

    Each engine of trtconv.toml that is not up to date is looked for in the folders, by what determines it, and
    written with its report where build would. Nothing in the folders is believed: hashes are compared, and an engine
    of another model, plan or version is left there.
    """
    from trtconv.engine.farm.store import Store

    flags = ManyFlags(**many)
    missing = next((folder for folder in folders if not Path(folder).is_dir()), None)
    if missing is not None:
        raise InputError(f"{missing}: no such folder", "Give the folders that trtconv run-job wrote to.")
    config = whole(flags)
    stores = [Store(Path(folder)) for folder in folders]
    return outcome_of([_take(request, stores) for request in agreed_builds(config, agree)], flags, config)


def _take(request: BuildRequest, stores: Sequence[Store]) -> Result:
    from trtconv.core.documents.farm import worker_of
    from trtconv.core.errors import EnvironmentMissing, TrtconvError
    from trtconv.core.requests.farm import AFTERWARDS
    from trtconv.engine.farm.planning import prepare
    from trtconv.pipeline.batch import failed_run

    try:
        waiting, report = prepare(request, None)
        if report is not None:
            return report
        assert waiting is not None
        for store in stores:
            document = store.result(waiting.job.name)
            if document is not None:
                return waiting.take(document, store.get, worker_of(document), AFTERWARDS)
        raise EnvironmentMissing(f"there is no result of job {waiting.job.name}", "trtconv run-job makes it.")
    except TrtconvError as error:
        return failed_run(request, error)
