"""`trtconv rewrite`."""

from __future__ import annotations

import click

from trtconv.cli import options
from trtconv.cli.process.isolated import IsolatedCommand
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.requests.rewrite import RewriteRequest


@click.command(
    "rewrite",
    cls=IsolatedCommand,
    epilog="""\b
Examples:
  All passes:
    trtconv rewrite unet.onnx -o unet.trt.onnx
  One pass ('trtconv passes' lists them), for an old TensorRT:
    trtconv rewrite unet.onnx -o unet.trt.onnx --only PASS --target tensorrt-8.6

\b
Exit status: 0 written; 1 the rewritten model does not compute the same; 2 a bad call or an
unreadable model.
""",
)
@options.model_argument
@options.for_models
@click.option("-o", "--output", required=True, metavar="OUT.onnx", help="Where the rewritten model goes.")
@options.asking(RewriteRequest)
@options.format_option("text", "json")
@options.quiet_option
def command(
    arguments: options.Flags[RewriteRequest], model: str, output: str, output_format: str, quiet: bool
) -> Outcome:
    """Write the model that build would hand to TensorRT.

    MODEL is an .onnx file, with its external data beside it; it is never written. The result is compared with it on
    ONNX Runtime where that can run both.
    """
    from trtconv import pipeline
    from trtconv.cli.formats.text import rewrite_text

    request = arguments.request(model=model, output=output)
    with show_progress(quiet) as progress:
        report = pipeline.rewrite(request, progress)
    return Outcome.of(report, output_format, rewrite_text)
