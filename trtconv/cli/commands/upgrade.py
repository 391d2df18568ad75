"""`trtconv upgrade`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtconv.cli import options
from trtconv.cli.commands.many import CI_FORMATS, ManyFlags, configured, whole
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.options import shared, without_unmet
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.upgrade import TrialSettings, UpgradeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trtconv.core.config import Entry
    from trtconv.core.documents.upgrade import UpgradeReport
    from trtconv.core.target import Target


@click.command(
    "upgrade",
    cls=Command,
    epilog="""\b
Examples:
  An environment with the TensorRT of today, and a model as the one that is installed here would build it:
    python -I -m venv rtx-1.5 && rtx-1.5/bin/pip install . 'tensorrt-rtx==1.5.*'
    trtconv upgrade --from rtx-1.5 unet.onnx --dim batch=1 --dim height=64:256:512 --dim width=64:256:512
  All models of trtconv.toml, between two environments, as a page:
    trtconv upgrade --from rtx-1.5 --to rtx-1.7 -o upgrade.html
  In CI:
    trtconv upgrade --from rtx-1.5 --to rtx-1.7 --format sarif -q > upgrade.sarif

\b
Exit status: 0 no model is worse off; 1 one is; 2 a bad call, or a model that could not be tried; 4 no TensorRT works
in an environment.
""",
)
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option(
    "--from",
    "before",
    metavar="RUNTIME",
    required=True,
    help="Environment with the TensorRT of today: the folder of a virtual environment, or its Python.",
)
@click.option(
    "--to",
    "after",
    metavar="RUNTIME",
    help="Environment with the TensorRT that is to take its place; default: the one of this call.",
)
@click.option("-o", "--output", metavar="PAGE.html", help="Write a page too.")
@options.for_models
@options.asking(TrialSettings)
@options.asking(UpgradeRequest)
@options.format_option("text", "json", *CI_FORMATS)
@options.many_options
def command(
    trials: options.Flags[TrialSettings],
    arguments: options.Flags[UpgradeRequest],
    models: tuple[str, ...],
    before: str,
    after: str | None,
    output: str | None,
    **many: Any,
) -> Outcome:
    """Tell what another TensorRT makes of models, before you change to it.

    Both versions are installed side by side, each in an environment of its own. In each, a process of its own Python
    runs this trtconv: it rewrites, parses, proves and builds every MODEL as trtconv build does, and writes nothing.
    The table says what each parser and builder refuses, how many layers are parsed otherwise, the error that the proof
    finds, and the time of the build.

    A regression is a model that had an engine and has none now, a larger error, a crash, or with --slower a slower
    build. Without MODEL, every model that trtconv.toml or pyproject.toml lists is tried, at the sizes that it says.
    """
    from trtconv.pipeline.upgrading.upgrade import upgrade

    flags = ManyFlags(**many)
    builds = _builds(trials, models, flags)
    page = None if output is None else _checked_page(Path(output), builds)
    request = arguments.request(
        builds=builds, before=Path(before), after=None if after is None else Path(after), jobs=flags.jobs
    )
    with show_progress(flags.quiet) as progress:
        report = upgrade(request, progress)
    if page is not None:
        from trtconv.cli.formats.page import upgrade_page
        from trtconv.core.files import atomic_write

        atomic_write(page, upgrade_page(report), through_links=True)
    return Outcome(_render(report, flags), report.exit_code, flags.output_format == "github")


def _builds(trials: options.Flags[TrialSettings], models: Sequence[str], flags: ManyFlags) -> tuple[BuildRequest, ...]:
    """Returns what both sides are asked for: by the configuration where it lists a model, and by the flags."""
    target = trials.request().target
    if not models:
        trials.refuse_single("target", "fail_on", "prove", "prove_time")
        entries = whole(flags).entries
        # Two versions of one family are one entry here.
        by_model = {(entry.build.model, _family(entry.build)): entry for entry in entries if entry.build is not None}
        matches = [entry for entry in by_model.values() if _is_for(entry, target)]
        return tuple(_over(trials, entry.build, entry.inherited) for entry in matches if entry.build is not None)
    _, groups = configured(flags, models)
    builds: list[BuildRequest] = []
    for model, own in zip(models, groups, strict=True):
        matches = [entry for entry in own if _is_for(entry, target)][:1]
        requests = [_over(trials, entry.build, entry.inherited) for entry in matches if entry.build is not None]
        plain = BuildRequest(model=Path(model), **shared(trials.request(), BuildRequest))
        builds += [dataclasses.replace(request, model=Path(model)) for request in requests or [plain]]
    return tuple(builds)


def _family(build: BuildRequest) -> str | None:
    return None if build.target is None else build.target.family


def _is_for(entry: Entry, target: Target | None) -> bool:
    """Whether an entry of the configuration is built, and for the family that is meant."""
    return entry.build is not None and (target is None or _family(entry.build) in (None, target.family))


def _over(trials: options.Flags[TrialSettings], build: BuildRequest, inherited: frozenset[str]) -> BuildRequest:
    over: Callable[[BuildRequest], BuildRequest] = trials.over  # type: ignore[assignment]
    return without_unmet(over(build), inherited, trials.flags)


def _checked_page(page: Path, builds: Sequence[BuildRequest]) -> Path:
    """Checks, before anything is built, that the page can be written and replaces nothing that is read."""
    from trtconv.core.files import openable
    from trtconv.core.outputs import Output, check_all
    from trtconv.core.requests.files import files_read

    page = openable(page)
    inputs = [file for build in builds for file in files_read(build)]
    check_all([Output(page, "the page", hint="Write the page to another file, such as upgrade.html.")], inputs)
    return page


def _render(report: UpgradeReport, flags: ManyFlags) -> str:
    if flags.output_format == "json":
        from trtconv.cli.formats.json import render

        return render(report.to_json())
    if flags.output_format == "text":
        from trtconv.cli.formats.upgrade import upgrade_text

        return upgrade_text(report, flags.verbose)
    from trtconv.cli.commands.many import ci_format
    from trtconv.cli.formats.upgrade import as_results

    return ci_format(flags.output_format, as_results(report))
