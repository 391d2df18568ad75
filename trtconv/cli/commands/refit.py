"""`trtconv refit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.requests.engine import RefitRequest

if TYPE_CHECKING:
    from trtconv.core.documents.refit import RefitReport


@click.command(
    "refit",
    cls=Command,
    epilog="""\b
Examples:
  An engine that was built with --refittable; writes unet-v2.engine:
    trtconv refit unet.engine unet-v2.onnx
  In place:
    trtconv refit unet.engine unet-v2.onnx -o unet.engine
  An engine that was built with --strip-weights, and the model that it was built from:
    trtconv refit unet.engine unet.onnx -o unet-full.engine

\b
Exit status: 0 refitted; 1 TensorRT does not refit it, old weights would stay, or the new network differs from its
model; 2 a bad call, or a model of another graph; 4 no GPU, or an engine for another machine.
""",
)
@click.argument("engine", metavar="ENGINE")
@click.argument("model", metavar="NEW.onnx")
@options.asking(RefitRequest)
@options.format_option("text", "json")
@options.quiet_option
def command(
    arguments: options.Flags[RefitRequest], engine: str, model: str, output_format: str, quiet: bool
) -> Outcome:
    """Put the weights of a retrained model into an engine.

    ENGINE was built with --refittable or --strip-weights, and its report is beside it. NEW.onnx has the same graph with
    other values: it goes through the same passes, casts and parser as the model that ENGINE was built from, and where
    the network is another one, the first layer that differs is named. A weight that has other values and cannot be put
    into the engine is an error: none of the old ones stays in it. Needs a GPU; nothing is built.
    """
    from trtconv.engine import refit

    with show_progress(quiet) as progress:
        report = refit(arguments.request(engine=engine, model=model), progress)
    return Outcome.of(report, output_format, _text)


def _text(report: RefitReport) -> str:
    from trtconv.cli.formats.wording import byte_size, count
    from trtconv.core.text import clean, leading

    before = report.before
    rows = [f"{clean(finding.message)}" for finding in report.findings]
    if report.engine is None:
        return "\n".join([*rows, "nothing was written"])
    changed = f"{before.changed} of {count(before.weights, 'weight')} changed"
    size = byte_size(report.engine.bytes or 0)
    return "\n".join([*rows, f"wrote {leading(report.engine.path)} ({size}): {changed}"])
