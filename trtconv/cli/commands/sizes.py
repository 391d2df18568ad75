"""`trtconv sizes`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.isolated import IsolatedCommand
from trtconv.cli.process.outcome import Outcome


@click.command(
    "sizes",
    cls=IsolatedCommand,
    epilog="""\b
Examples:
  Which heights and widths a U-Net takes:
    trtconv sizes unet.onnx --dim batch=1 --dim height=64:256:512 --dim width=64:256:512
  In a script, the step of the height:
    trtconv sizes unet.onnx --format json | jq .dims.height.step

\b
Exit status: 0 found; 1 no size in range is accepted; 2 a bad call or an unreadable model.
""",
)
@options.model_argument
@options.for_models
@click.option(
    "--dim",
    multiple=True,
    metavar="NAME=MIN:OPT:MAX",
    help="The range to look at; without one, 1 to 1024. NAME is the dimension's name in the model, or INPUT:AXIS "
    "(x:2). Repeatable.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="INPUT=BOUNDS,...",
    help="The ranges of all axes of an input, as in x=1,3,64:512,64:512; _ leaves an axis out. Repeatable.",
)
@options.format_option("text", "json")
@options.quiet_anyway
def command(model: str, dim: tuple[str, ...], inputs: tuple[str, ...], output_format: str) -> Outcome:
    """List the sizes that a model accepts, and the nodes that say so.

    A profile is a box of sizes, but a network accepts only some of those in it: a U-Net that halves three times only
    multiples of 8. Found on shapes alone, for every size in range; nothing is run.
    """
    from trtconv.cli.formats.sizes import sizes_text
    from trtconv.core.dim_flags import parse_bounds
    from trtconv.core.documents.pipeline import is_pipeline, load_document
    from trtconv.shapes.report import SizesRequest, sizes

    if is_pipeline(model):
        # A model in parts takes the sizes that the whole takes.
        model = str(load_document(Path(model)).model())
    report = sizes(SizesRequest(Path(model), parse_bounds(dim, inputs)))
    return Outcome.of(report, output_format, sizes_text)
