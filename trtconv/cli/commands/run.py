"""`trtconv run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.process.outcome import Command, Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.requests.engine import RunRequest

if TYPE_CHECKING:
    from trtconv.core.documents.inspect import RunReport


@click.command(
    "run",
    cls=Command,
    short_help="Run an engine once, from arrays to arrays.",
    epilog="""\b
Examples:
  Inputs made with numpy.savez("in.npz", x=array):
    trtconv run unet.engine --inputs in.npz -o out.npz
  An image, as the network was trained to see it:
    trtconv run net.engine --inputs cat.jpg --preprocess size=224x224,scale=1/255 -o out.npz

\b
Exit status: 0 run; 1 the engine does not run; 2 a bad call, or inputs that do not fit the engine; 4 no GPU, or an
engine for another machine.
""",
)
@click.argument("engine", metavar="ENGINE")
@options.asking(RunRequest)
@options.format_option("text", "json")
@options.quiet_option
def command(asked: options.Asked[RunRequest], engine: str, output_format: str, quiet: bool) -> Outcome:
    """Run an engine once, from arrays to arrays.

    ENGINE is what build made, with its report beside it. The first optimization profile that has the shapes of the
    inputs is used. docs/running.md shows how to run an engine from a program of your own.
    """
    from trtconv.cli.formats import json
    from trtconv.engine import run

    request = asked.request(engine=engine)
    with show_progress(quiet) as progress:
        report = run(request, progress)
    return Outcome(json.render(report.to_json()) if output_format == "json" else _text(report))


def _text(report: RunReport) -> str:
    from trtconv.cli.formats.wording import shape_text, table
    from trtconv.core.text import clean, leading

    rows = [
        (kind, clean(name), each.dtype, shape_text(each.shape))
        for kind, held in (("input", report.inputs), ("output", report.outputs))
        for name, each in held.items()
    ]
    return "\n".join([*table(rows, ""), "", f"wrote {leading(report.output)}"])
