"""`trtconv verify`."""

from __future__ import annotations

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.requests.engine import VerifyRequest


@click.command(
    "verify",
    cls=Command,
    epilog="""\b
Examples:
  The engine beside the model, at min, opt, max and two random sizes of every profile:
    trtconv verify unet.onnx
  Another engine, with inputs of your own:
    trtconv verify unet.onnx out/unet-fp16.engine --inputs sample.npz
  Inputs made for each size by make(shapes, seed), which returns a dict of arrays:
    trtconv verify unet.onnx --generator inputs.py:make
  A quantised model's engine, against the float model:
    trtconv verify unet.int8.onnx --against unet.onnx
  Where it goes wrong, the first tensor that does:
    trtconv verify unet.onnx --bisect
  In CI, where the machine must have a GPU:
    trtconv verify unet.onnx --require-engine --format json -q > verify.json

\b
Exit status: 0 verified; 1 an output is beyond the tolerance, or the engine does not run; 2 a bad call, or
files that do not belong together; 4 not all could be compared on this machine.
""",
)
@options.model_argument
@options.for_models
@click.argument("engine", metavar="[ENGINE]", required=False)
@options.asking(VerifyRequest)
@options.format_option("text", "json")
@options.quiet_option
def command(
    arguments: options.Flags[VerifyRequest], model: str, engine: str | None, output_format: str, quiet: bool
) -> Outcome:
    """Prove that an engine computes what its model means.

    MODEL is the .onnx file, ENGINE what build made of it, with its report beside it (default: MODEL with the suffix
    .engine or, where there are several targets, .TARGET.engine; where both are there, verify ends and names them).
    The engine's outputs are compared with those of the original model on ONNX Runtime, at min, opt, max and random
    sizes of every optimization profile; random sizes are ones that the network accepts.

    Of a MODEL.pipeline.json (build --partition) the parts are run one after the other, at ten sizes, and held to the
    model; where there is no GPU, the parts on ONNX Runtime, and what TensorRT parsed of each engine's part.

    Where the engine cannot be run, as on a machine without a GPU, the model as build hands it to TensorRT, rewritten
    and cast, is compared instead. The output says so, and that the engine was not run.
    """
    from trtconv.cli.formats.engine import verify_text, verify_verdict
    from trtconv.core.documents.pipeline import is_pipeline
    from trtconv.engine import verify, verify_pipeline

    if arguments.values["against"] is not None and engine is None and not model.endswith(".onnx"):
        model, engine = model_of(model, arguments.values["report"]), model
    request = arguments.request(model=model, engine=engine)
    if is_pipeline(model) or (engine is not None and is_pipeline(engine)):
        from trtconv.cli.formats.pipeline import verified_text, verified_verdict

        with show_progress(quiet) as progress:
            judged = verify_pipeline(request, progress)
        return Outcome.of(judged, output_format, verified_text, verified_verdict(judged))
    with show_progress(quiet) as progress:
        report = verify(request, progress)
    return Outcome.of(report, output_format, verify_text, verify_verdict(report))


def model_of(engine: str, report: str | None) -> str:
    """Returns the path of the model that an engine was built from, as its report has it."""
    from trtconv.core.documents.saved import load_report

    return load_report(report or f"{engine}.json").report.model.path
