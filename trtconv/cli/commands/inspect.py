"""`trtconv inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.isolated import IsolatedCommand
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.requests.engine import InspectRequest


@click.command(
    "inspect",
    cls=IsolatedCommand,
    epilog="""\b
Examples:
  An engine: inputs, profiles, layers with their precision and, on its GPU, their time:
    trtconv inspect unet.engine
  What its report knows, without loading it:
    trtconv inspect unet.engine.json
  A model in parts: what runs where, and what crosses:
    trtconv inspect yolo.pipeline.json
  A model: inputs, operators, weights:
    trtconv inspect unet.onnx
  The layers that take longest:
    trtconv inspect unet.engine --format json -q | jq '.layers | sort_by(-.time_us)[:5]'

\b
Exit status: 0 shown; 1 TensorRT does not load the engine; 2 a bad call, or an engine that is not that of its
report; 4 an engine without a report cannot be loaded here.
""",
)
@click.argument("file", metavar="FILE")
@options.for_models
@options.asking(InspectRequest)
@options.format_option("text", "json")
@options.quiet_option
def command(arguments: options.Flags[InspectRequest], file: str, output_format: str, quiet: bool) -> Outcome:
    """Show what is in an engine, its report, or an ONNX file.

    Loading an engine runs code that is in it: it is loaded only where its SHA-256 is the one in its report, or with
    --trust. Where it cannot be loaded here, as without a GPU, what the report knows is shown.

    Layers tell their precision, memory formats and kernels only where the engine was built with details.
    """
    from trtconv.cli.formats import json
    from trtconv.cli.formats.inspection import inspect_text
    from trtconv.core.documents.pipeline import is_pipeline, load_document
    from trtconv.engine import inspect

    if is_pipeline(file):
        from trtconv.cli.formats.pipeline import document_blocks

        document = load_document(Path(file)).document
        text = "\n\n".join(document_blocks(document, verbose=True))
        return Outcome(json.render(document.to_json()) if output_format == "json" else text)
    request = arguments.request(path=file)
    with show_progress(quiet) as progress:
        report = inspect(request, progress)
    return Outcome.of(report, output_format, inspect_text)
