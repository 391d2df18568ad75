"""What `trtconv check` and `trtconv build` have of the configuration: all models that it lists, or those named."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.agreement import AGREE
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen

if TYPE_CHECKING:
    from trtconv.core.config import Config, Entry
    from trtconv.core.documents.build import BuildReport
    from trtconv.core.documents.check import CheckReport, FailedRun
    from trtconv.core.requests.build import BuildRequest
    from trtconv.core.requests.check import CheckRequest
    from trtconv.pipeline.batch import Request, Result


CI_FORMATS = ("sarif", "github", "junit")
"""Formats that other tools read."""


@frozen
class ManyFlags:
    """The flags that decide which models are meant.

    Args:
        config: The configuration; None: the nearest one.
        jobs: Number of processes; None: as many as fit.
    """

    output_format: str
    config: str | None
    jobs: int | None
    quiet: bool
    verbose: bool


def agreed_builds(config: Config, agree: Sequence[str]) -> list[BuildRequest]:
    """Returns the builds of a configuration; `agree` is the code that they may load, as `--agree` has it."""
    agreements = AGREE.of_flags({"agree": agree})
    return [dataclasses.replace(build, agree=agreements) for build in config.builds]


FOR_ALL = ("agree", "fail_on", "prove", "prove_time")
"""What the command line may say of all models of the configuration."""


def check_all(flags: ManyFlags, over: Callable[[CheckRequest], CheckRequest]) -> Outcome:
    """Runs `check` on every model of the configuration; `over` adds what the command line says of all of them."""
    config = whole(flags)
    return each_of([over(check) for check in config.checks], flags, config)


def each_of(requests: Sequence[Request], flags: ManyFlags, config: Config | None) -> Outcome:
    """Runs `check` or `build` on several models.

    Args:
        requests: What to do.
        flags: How it is told.
        config: The configuration that lists them, if any does.
    """
    from trtconv.cli.formats.text import run_row
    from trtconv.pipeline.batch import LocalPool, run_all

    numbers = itertools.count(1)
    with show_progress(flags.quiet) as progress:

        def ended(_: int, result: Result) -> None:
            progress.row(f"[{next(numbers)}/{len(requests)}] {run_row(result)}")

        results = run_all(requests, LocalPool(flags.jobs), progress, ended)
    return outcome_of(results, flags, config)


def outcome_of(results: list[Result], flags: ManyFlags, config: Config | None) -> Outcome:
    """Returns what a command about many models ends with."""
    github = flags.output_format == "github"
    if config is not None:
        results = [_as_listed(result) for result in results]
    return Outcome(_render(flags, config, results), _exit_code(results), github, verdict_of(results))


def outcome_of_build(report: BuildReport, flags: ManyFlags) -> Outcome:
    """Returns what a build of one model ends with."""
    from trtconv.cli.formats.text import build_text

    return Outcome.of(report, flags.output_format, lambda own: build_text(own, flags.verbose), verdict_of([report]))


def _as_listed(result: Result) -> Result:
    """Returns a result whose hint names what the configuration has in the place of flags."""
    from trtconv.core.configuration_words import in_configuration
    from trtconv.core.documents.check import FailedRun

    if not isinstance(result, FailedRun):
        return result
    return dataclasses.replace(result, hint=in_configuration(result.hint))


_NAMED = 3
"""How many of the runs that failed a line names."""


def verdict_of(results: Sequence[Result]) -> str:
    """Returns in a line which runs failed, and on what; nothing where none did."""
    from trtconv.cli.formats.text import run_row

    # A row begins with how it ended.
    rows = [run_row(result).partition("  ")[2] for result in results if result.exit_code]
    more = f"; and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    head = f"{len(rows)} of {len(results)} failed: " if len(results) > 1 and rows else ""
    return f"{head}{'; '.join(rows[:_NAMED])}{more}"


def configured(flags: ManyFlags, models: Sequence[str]) -> tuple[Config | None, list[tuple[Entry, ...]]]:
    """Returns what the configuration says of models that the command line names.

    Args:
        flags: Which configuration is meant.

    Returns:
        The configuration, None where none is meant or it has none of the models; and the entries of each model.

    Raises:
        InputError: The configuration cannot be read, or --config names one that has not all of the models.
    """
    from trtconv.core import config

    path = Path(flags.config) if flags.config is not None else _nearest(required=False)
    listing = None if path is None else config.load(path)
    entries = [() if listing is None else listing.of(Path(model)) for model in models]
    for model, own in zip(models, entries, strict=True):
        if listing is not None and flags.config is not None and not own:
            names = dict.fromkeys(str(entry.check.model) for entry in listing.entries)
            raise InputError(f"{listing.path} does not list {model}", f"It lists {', '.join(names)}.")
    return (listing if any(entries) else None), entries


def for_target(entries: Sequence[Entry], target: str | None) -> list[Entry]:
    """Returns the entries of a model that a call is about.

    Args:
        entries: One a target.
        target: The --target of the command line: its entry is meant, or the first, for another target; None: all are.
    """
    if target is None:
        return list(entries)
    return [e for e in entries if str(e.check.target or "auto") == target][:1] or list(entries[:1])


def _exit_code(results: list[Result]) -> int:
    from trtconv.pipeline.batch import worst_exit_code

    return worst_exit_code([result.exit_code for result in results])


def whole(flags: ManyFlags) -> Config:
    """Returns the configuration that says which models are meant.

    Raises:
        InputError: It cannot be read.
        click.UsageError: There is none.
    """
    from trtconv.core import config

    path = Path(flags.config) if flags.config is not None else _nearest()
    if path is None:
        # Loaded only here: a child that works on one model has no use for it.
        import click

        context = click.get_current_context(silent=True)
        takes_models = context is not None and any(
            isinstance(parameter, click.Argument) for parameter in context.command.params
        )
        missing = "Missing argument 'MODEL', and there" if takes_models else "There"
        raise click.UsageError(
            f"{missing} is no trtconv.toml here or above; trtconv init writes one, --config names one elsewhere.",
            context,
        )
    return config.load(path)


def _nearest(required: bool = True) -> Path | None:
    from trtconv.core import config

    try:
        here = Path.cwd()
    except OSError as error:
        if not required:
            return None
        raise InputError("the working directory is gone", "Change to another one, or give MODEL.") from error
    path = config.find(here)
    # A relative path reads better in what is printed.
    return path.relative_to(here) if path is not None and path.parent == here else path


def _render(flags: ManyFlags, config: Config | None, results: list[Result]) -> str:
    if flags.output_format == "text":
        from trtconv.cli.formats.text import runs_text

        return runs_text(results, flags.verbose)
    if flags.output_format == "json":
        return _json(config, results)
    return ci_format(flags.output_format, results)


def _json(config: Config | None, results: list[Result]) -> str:
    from trtconv.cli.formats.json import render
    from trtconv.core.documents.commands import RunsReport
    from trtconv.pipeline.batch import summarize_runs

    path = str(config.path) if config else None
    return render(RunsReport(path, results, summarize_runs(results)).to_json())


def working_folder() -> Path | None:
    """Returns the working directory, None where it has been removed meanwhile."""
    try:
        return Path.cwd()
    except OSError:
        return None


def ci_format(output_format: str, results: Sequence[Result]) -> str:
    """Renders results as SARIF, GitHub annotations or JUnit; those that ended with an exception are told as such."""
    from trtconv.cli.formats import github, junit, sarif
    from trtconv.core.documents.check import CheckReport, FailedRun
    from trtconv.rules import RULES

    reports: list[CheckReport] = [result for result in results if isinstance(result, CheckReport)]
    failures: list[FailedRun] = [result for result in results if isinstance(result, FailedRun)]
    if output_format == "sarif":
        return sarif.check_sarif(reports, RULES, working_folder(), failures)
    if output_format == "github":
        return github.check_github(reports, working_folder(), failures)
    return junit.check_junit(reports, RULES, failures)
