"""`trtconv reduce`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.files import with_ending
from trtconv.core.requests.reduce import ReduceRequest


@click.command(
    "reduce",
    cls=Command,
    epilog="""\b
Examples:
  What of a model TensorRT refuses, with the flags that build failed with:
    trtconv reduce unet.onnx --dim batch=1 --dim height=64:256:512 --dim width=64:256:512
  As TensorRT takes it, without trtconv's rewrites:
    trtconv reduce unet.onnx -o part.onnx --no-rewrite --target rtx

\b
Exit status: 0 the part is written, and no node of it can be left out; 1 it is written, but
--trials ended the search; 2 the model does not fail, a bad call or an unreadable model; 4 the
runtime asked for is missing.
""",
)
@options.model_argument
@options.for_models
@click.option("-o", "--output", metavar="OUT.onnx", help="Where the part goes; default: MODEL with .reduced.onnx.")
@options.asking(ReduceRequest)
@options.format_option("text", "json")
@options.quiet_option
def command(
    arguments: options.Flags[ReduceRequest], model: str, output: str | None, output_format: str, quiet: bool
) -> Outcome:
    """Find the smallest part of a model that still fails.

    MODEL is an .onnx file, with its external data beside it; it is never written. It must fail with these flags as
    build does: be refused by a rule, TensorRT's parser or its builder, crash or hang one of them, or be rewritten into
    something that computes something else. Parts of it are then built, each in a process of its own, and the smallest
    that fails in the same way - the same finding about the same operator - is written, weights inside, at the sizes
    that its inputs have in the whole. The last line of the output is the command that shows the failure.
    """
    from trtconv.cli.formats.reduce import reduce_text
    from trtconv.pipeline.reduce import reduce

    request = arguments.request(model=model, output=output or with_ending(Path(model), ".reduced.onnx"))
    with show_progress(quiet) as progress:
        report = reduce(request, progress)
    return Outcome.of(report, output_format, reduce_text)
