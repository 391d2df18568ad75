"""`trtconv rewrite`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.outcome import Command, Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.frozen import frozen


@frozen
class RewriteFlags:
    """The command's flags."""

    model: str
    output: str
    only: tuple[str, ...]
    skip: tuple[str, ...]
    requantize: bool
    target: str
    output_format: str
    quiet: bool


@click.command(
    "rewrite",
    cls=Command,
    short_help="Write the model that build would hand to TensorRT.",
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
@click.option("-o", "--output", required=True, metavar="OUT.onnx", help="Where the rewritten model goes.")
@click.option("--only", multiple=True, metavar="PASS", help="Run this pass and no other. Repeatable.")
@click.option("--skip", multiple=True, metavar="PASS", help="Leave this pass out. Repeatable.")
@options.requantize_option
@options.target_option
@options.format_option("text", "json")
@options.quiet_option
@options.packed(RewriteFlags)
def command(flags: RewriteFlags) -> Outcome:
    """Write the model that build would hand to TensorRT.

    MODEL is an .onnx file, with its external data beside it; it is never written. The result is compared with it on
    ONNX Runtime where that can run both.
    """
    from trtconv.cli.formats import json, text
    from trtconv.core.requests.rewrite import RewriteRequest

    request = RewriteRequest(
        model=Path(flags.model),
        output=Path(flags.output),
        only=flags.only,
        skip=flags.skip,
        target=options.parse_target(flags.target),
        requantize=flags.requantize,
    )
    from trtconv import pipeline

    with show_progress(flags.quiet) as progress:
        report = pipeline.rewrite(request, progress)
    render = json.render(report.to_json()) if flags.output_format == "json" else text.rewrite_text(report)
    return Outcome(render, report.exit_code)
