"""`trtconv explain`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.isolated import IsolatedCommand
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.requests.explain import ExplainRequest


@click.command(
    "explain",
    cls=IsolatedCommand,
    epilog="""\b
Examples:
  Every ConvTranspose of a model, with its sizes:
    trtconv explain unet.onnx
  One of them, by name, index, place or output tensor:
    trtconv explain unet.onnx /up3/ConvTranspose
    trtconv explain unet.onnx 19
    trtconv explain unet.onnx 'graph/node[19]'
  What an older TensorRT would make of it:
    trtconv explain unet.onnx 19 --target tensorrt-8.6

\b
Exit status: 0 explained; 2 a bad call, an unreadable model, or a node that is no ConvTranspose.
""",
)
@options.model_argument
@click.argument("node", required=False, metavar="[NODE]")
@options.for_models
@options.asking(ExplainRequest)
@options.format_option("text", "json")
@options.quiet_anyway
def command(arguments: options.Flags[ExplainRequest], model: str, node: str | None, output_format: str) -> Outcome:
    """Explain one ConvTranspose in words and a drawing, or list them.

    MODEL is an .onnx file, with its external data beside it. NODE is a name, an index among the graph's nodes, a place
    such as graph/node[5], or the tensor that the node makes; it may be left out where the model has only one
    ConvTranspose, else all are listed.

    Shows how the output size comes about, what each attribute does, which elements the kernel reaches, what TensorRT's
    parser makes of the node as it is, what trtconv makes of it and why that computes the same, whether it will run in
    int8, and what to think about (checkerboard artefacts, gaps). Needs no GPU; without a TensorRT, only its parser's
    verdict is missing.
    """
    from trtconv.cli.formats.explain import explain_text
    from trtconv.explainer.node import explain

    with show_progress(quiet=True) as progress:
        report = explain(arguments.request(model=Path(model), node=node or ""), progress)
    return Outcome.of(report, output_format, explain_text)
