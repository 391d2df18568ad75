"""`trtconv inspect`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.outcome import Command, Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.frozen import frozen


@frozen
class InspectFlags:
    """The command's flags."""

    file: str
    report: str | None
    no_times: bool
    trust: bool
    time_limit: float
    output_format: str
    quiet: bool


@click.command(
    "inspect",
    cls=Command,
    short_help="Show what is in an engine, its report, or an ONNX file.",
    epilog="""\b
Examples:
  An engine: inputs, profiles, layers with their precision and, on its GPU, their time:
    trtconv inspect unet.engine
  What its report knows, without loading it:
    trtconv inspect unet.engine.json
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
@options.report_option
@click.option("--no-times", is_flag=True, help="Do not run the engine to time its layers.")
@options.trust_option
@options.time_limit_option(120)
@options.format_option("text", "json")
@options.quiet_option
@options.packed(InspectFlags)
def command(flags: InspectFlags) -> Outcome:
    """Show what is in an engine, its report, or an ONNX file.

    Loading an engine runs code that is in it: it is loaded only where its SHA-256 is the one in its report, or with
    --trust. Where it cannot be loaded here, as without a GPU, what the report knows is shown.

    Layers tell their precision, memory formats and kernels only where the engine was built with details.
    """
    from trtconv import engine
    from trtconv.cli.formats import json
    from trtconv.cli.formats.inspection import inspect_text
    from trtconv.core.requests.engine import InspectRequest

    request = InspectRequest(
        path=Path(flags.file),
        report=options.optional_path(flags.report),
        trust=flags.trust,
        times=not flags.no_times,
        seconds=flags.time_limit,
    )
    with show_progress(flags.quiet) as progress:
        document = engine.inspect(request, progress)
    render = json.render(document) if flags.output_format == "json" else inspect_text(document)
    return Outcome(render, int(document["exit_code"]))
