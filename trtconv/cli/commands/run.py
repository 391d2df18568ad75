"""`trtconv run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.errors import InputError
from trtconv.core.requests.engine import RunRequest

if TYPE_CHECKING:
    from trtconv.core.documents.inspect import RunReport
    from trtconv.core.documents.pipeline_verify import PipelineRunReport


@click.command(
    "run",
    cls=Command,
    epilog="""\b
Examples:
  Inputs made with numpy.savez("in.npz", x=array):
    trtconv run unet.engine --inputs in.npz -o out.npz
  An image, as the network was trained to see it:
    trtconv run net.engine --inputs cat.jpg --preprocess size=224x224,scale=1/255 -o out.npz
  A model in parts (build --partition), also where no GPU is:
    trtconv run yolo.pipeline.json --inputs in.npz -o out.npz --engines onnxruntime

\b
Exit status: 0 run; 1 the engine does not run; 2 a bad call, or inputs that do not fit the engine; 4 no GPU, or an
engine for another machine.
""",
)
@click.argument("engine", metavar="ENGINE|PIPELINE")
@options.asking(RunRequest)
@options.format_option("text", "json")
@options.quiet_option
def command(arguments: options.Flags[RunRequest], engine: str, output_format: str, quiet: bool) -> Outcome:
    """Run an engine once, from arrays to arrays.

    ENGINE is what build made, with its report beside it, and PIPELINE the .pipeline.json of build --partition: its
    parts run one after the other. The first optimization profile that has the shapes of the inputs is used.
    docs/running.md shows how to run an engine from a program of your own.
    """
    from trtconv.core.documents.pipeline import is_pipeline
    from trtconv.engine import run, run_pipeline

    request = arguments.request(engine=engine)
    if not is_pipeline(engine):
        for flag, is_said in (("--engines", request.engines != "tensorrt"), ("--reference", request.references)):
            if is_said:
                raise InputError(f"{flag} is about a pipeline, and {engine} is not one", f"Leave out {flag}.")
    with show_progress(quiet) as progress:
        report = run_pipeline(request, progress) if is_pipeline(engine) else run(request, progress)
    return Outcome.of(report, output_format, _text)


def _text(report: RunReport | PipelineRunReport) -> str:
    from trtconv.cli.formats.wording import shape_text, table
    from trtconv.core.text import clean, leading

    rows = [
        (kind, clean(name), tensor.dtype, shape_text(tensor.shape))
        for kind, tensors in (("input", report.inputs), ("output", report.outputs))
        for name, tensor in tensors.items()
    ]
    parts = [(part.kind, part.file, f"{1000 * part.seconds:.2f} ms") for part in getattr(report, "parts", ())]
    return "\n".join(
        [*table(rows, ""), *(["", *table(parts, "")] if parts else []), "", f"wrote {leading(report.output)}"]
    )
