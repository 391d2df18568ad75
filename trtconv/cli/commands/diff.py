"""`trtconv diff`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome


@click.command(
    "diff",
    cls=Command,
    epilog="""\b
Examples:
  An engine with the one of yesterday, by their reports:
    trtconv diff yesterday/unet.engine unet.engine
  In CI, where nothing may grow by more than 2%:
    trtconv bench unet.engine --format json > unet.engine.bench.json
    trtconv diff main/unet.engine unet.engine --tolerance 0.02
  In a script, what is worse:
    trtconv diff a.engine.json b.engine.json --format json | jq .regressions

\b
Exit status: 0 no regression; 1 a regression; 2 a bad call, or files that are no reports.
""",
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--tolerance",
    type=options.FiniteRange(min=0),
    default=0.05,
    show_default=True,
    metavar="E",
    help="By what part of A's value latency, sizes and errors of B may be larger.",
)
@options.format_option("text", "json")
@options.quiet_anyway
def command(a: str, b: str, tolerance: float, output_format: str) -> Outcome:
    """Compare two engines, and fail on a regression.

    A and B are engines with their reports beside them, or the reports. Compared are options, profiles, rewrites,
    findings and sizes; and layers, precision, numerics and latency, as far as ENGINE.inspect.json, ENGINE.verify.json
    and ENGINE.bench.json lie beside both. Nothing is run.

    A regression is a latency, a size or an error that grew beyond the tolerance, a new error among the findings, sizes
    that are taken no more, a proof that does not agree any more, or an engine that was not built.
    """
    from trtconv.cli.formats.diff import compare, diff_text
    from trtconv.cli.formats.page.gather import gather

    report = compare(gather(Path(a)), gather(Path(b)), tolerance)
    return Outcome.of(report, output_format, diff_text)
