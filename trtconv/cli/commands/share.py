"""`trtconv share`."""

from __future__ import annotations

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.requests.share import ShareRequest


@click.command(
    "share",
    cls=Command,
    epilog="""\b
Examples:
  What of a model TensorRT refuses, with the flags that build failed with:
    trtconv share unet.onnx -o part.onnx --dim batch=1 --dim height=64:256:512 --dim width=64:256:512
  What is slow: a build that takes more than 20 seconds counts as failing:
    trtconv share unet.onnx -o part.onnx --timeout 20

\b
Exit status: 0 part and page are written; 1 they are written, but --trials ended the search, or
something of the model is left in them and they are not; 2 the model does not fail, or its own
names or weights are what it fails on; 4 the runtime asked for is missing.
""",
)
@options.model_argument
@options.for_models
@click.option(
    "-o", "--output", required=True, metavar="PART.onnx", help="Where the part goes; the page: PART.share.md."
)
@options.asking(ShareRequest)
@options.format_option("text", "json")
@options.quiet_option
def command(
    arguments: options.Flags[ShareRequest], model: str, output: str, output_format: str, quiet: bool
) -> Outcome:
    """Make a part of a failing model that may be shown to others.

    MODEL is an .onnx file that fails with these flags as build does; it is never written. The smallest part that fails
    in the same way is found as reduce finds it. Then its names become others, its large sizes small ones, and its
    weights random ones of about the same statistics, step by step, as long as it fails alike; metadata and
    documentation stay behind. Written are the part, and a page beside it: how it fails, the lines that show it with
    trtconv, NVIDIA's tool and Polygraphy, all that is left of the model, and a text for an issue. Both are searched for
    names and weights of the model before they are written.
    """
    from trtconv.cli.formats.share import share_text
    from trtconv.pipeline.sharing import share

    request = arguments.request(model=model, output=output)
    with show_progress(quiet) as progress:
        report = share(request, progress)
    return Outcome.of(report, output_format, share_text)
