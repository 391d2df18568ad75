"""`trtconv extension`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.process.command import Word
from trtconv.cli.process.isolated import IsolatedCommand
from trtconv.cli.process.outcome import Outcome
from trtconv.core.errors import InputError

if TYPE_CHECKING:
    from trtconv.core.documents.extension import ExtensionList, ExtensionReport


@click.command(
    "extension",
    cls=IsolatedCommand,
    epilog="""\b
Examples:
  Passes, rules and operators in Python, or rules of rewriting in TOML:
    trtconv extension test acme.py
    trtconv extension test rules.toml
  What installed packages offer; none of it is loaded until --extend names it:
    trtconv extension list

\b
Exit status: 0 all is as it must be; 1 something is not; 2 a bad call, or no such file.
""",
)
@click.argument("what", metavar="test|list", type=Word(["test", "list"]))
@click.argument("file", metavar="[FILE]", required=False)
@options.format_option("text", "json")
@options.quiet_anyway
def command(what: str, file: str | None, output_format: str) -> Outcome:
    """Test passes and rules of your own, or list those that packages offer.

    test runs FILE, which is code where it ends in .py: the models of each page, the contract of passes, that a second
    run changes nothing, and that the numbers stay, at random inputs and for models like that of the page. A rule of
    rewriting is shown to be right for every type and rank that it allows. docs/extending.md says how to write them.
    """
    if (what == "test") != (file is not None):
        raise InputError("test goes with a FILE, and list with none", "Write trtconv extension test FILE.py.")
    if file is not None:
        from trtconv.pipeline.extending.testing import test_extension

        report = test_extension(Path(file))
        return Outcome.of(report, output_format, _tested)
    from trtconv.core.documents.extension import ExtensionList
    from trtconv.pipeline.extending.installed import installed

    return Outcome.of(ExtensionList(installed()), output_format, _listed)


def _tested(report: ExtensionReport) -> str:
    from trtconv.core.text import clean

    lines = [f"{report.file}  sha256:{report.sha256}"]
    for trial in report.trials:
        mark = "ok    " if trial.passed else "failed"
        lines.append(f"  {mark}  {trial.of}, {trial.what}{f': {trial.why}' if trial.why else ''}")
    failed = sum(not trial.passed for trial in report.trials)
    lines.append(f"{failed} of {len(report.trials)} trials failed" if failed else f"{len(report.trials)} trials passed")
    return "\n".join(map(clean, lines))


def _listed(listing: ExtensionList) -> str:
    from trtconv.core.text import clean

    if not listing.extensions:
        return "no installed package offers an extension"
    lines = (
        f"{extension.name}  {extension.package}, {extension.module}, sha256:{extension.sha256 or '?'}"
        for extension in listing.extensions
    )
    return "\n".join([*map(clean, lines), "off until --extend names one"])
