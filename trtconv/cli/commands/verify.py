"""`trtconv verify`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.outcome import Command, Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.frozen import frozen


@frozen
class VerifyFlags:
    """The command's flags."""

    model: str
    engine: str | None
    dim: tuple[str, ...]
    report: str | None
    inputs: str | None
    generator: str | None
    seed: int
    random: int
    tolerance: float | None
    cosine: float | None
    mismatches: float | None
    bisect: bool
    trust: bool
    require_engine: bool
    time_limit: float
    output_format: str
    quiet: bool


@click.command(
    "verify",
    cls=Command,
    short_help="Prove that an engine computes what its model means.",
    epilog="""\b
Examples:
  The engine beside the model, at min, opt, max and two random sizes of every profile:
    trtconv verify unet.onnx
  Another engine, with inputs of your own:
    trtconv verify unet.onnx out/unet-fp16.engine --inputs sample.npz
  Inputs made for each size by make(shapes, seed), which returns a dict of arrays:
    trtconv verify unet.onnx --generator inputs.py:make
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
@click.argument("engine", metavar="[ENGINE]", required=False)
@click.option(
    "--dim",
    multiple=True,
    metavar="NAME=MIN:OPT:MAX",
    help="Run at these sizes instead of those of the profiles; NAME=N is one size. Repeatable.",
)
@options.report_option
@click.option("--inputs", metavar="FILE.npz", help="Run with these inputs alone, one array for each input by name.")
@click.option("--generator", metavar="FILE.py:FUNC", help="Make inputs with FUNC(shapes, seed); its code is run.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of inputs and random sizes.")
@click.option(
    "--random", type=click.IntRange(0, 1000), default=2, show_default=True, help="Random sizes of each profile."
)
@click.option(
    "--tolerance",
    type=options.FiniteRange(0),
    metavar="X",
    help="Largest difference of an element, as a part of the output's largest magnitude. Default: by precision "
    "(float32 1e-4, tf32 2e-2, fp16 2e-2, int8 5e-2, bf16 1e-1).",
)
@click.option("--cosine", type=options.FiniteRange(-1, 1), metavar="X", help="Smallest cosine similarity of an output.")
@click.option(
    "--mismatches",
    type=options.FiniteRange(0, 1),
    metavar="X",
    help="Share of the elements that may be beyond. Default: 0.",
)
@click.option("--bisect", is_flag=True, help="On failure, look for the first tensor that diverges.")
@options.trust_option
@click.option(
    "--require-engine", is_flag=True, help="Fail (exit 4) where the engine cannot be run here, as without a GPU."
)
@options.time_limit_option(600)
@options.format_option("text", "json")
@options.quiet_option
@options.packed(VerifyFlags)
def command(flags: VerifyFlags) -> Outcome:
    """Prove that an engine computes what its model means.

    MODEL is the .onnx file, ENGINE what build made of it (default: MODEL with the suffix .engine), with its report
    beside it. The engine's outputs are compared with those of the original model on ONNX Runtime, at min, opt, max
    and random sizes of every optimization profile; random sizes are ones that the network accepts.

    Where the engine cannot be run, as on a machine without a GPU, the model as build hands it to TensorRT, rewritten
    and cast, is compared instead. The output says so, and that the engine was not run.
    """
    from trtconv import engine
    from trtconv.cli.formats import json
    from trtconv.cli.formats.engine import verify_text
    from trtconv.core.dim_flags import parse_dims
    from trtconv.core.requests.engine import Limits, VerifyRequest

    request = VerifyRequest(
        model=Path(flags.model),
        engine=options.optional_path(flags.engine),
        report=options.optional_path(flags.report),
        dims=parse_dims(flags.dim),
        inputs=options.optional_path(flags.inputs),
        generator=flags.generator,
        seed=flags.seed,
        random=flags.random,
        limits=Limits(flags.tolerance, flags.cosine, flags.mismatches),
        bisect=flags.bisect,
        trust=flags.trust,
        require_engine=flags.require_engine,
        seconds=flags.time_limit,
    )
    with show_progress(flags.quiet) as progress:
        report = engine.verify(request, progress)
    document = report.to_json()
    render = json.render(document) if flags.output_format == "json" else verify_text(document)
    return Outcome(render, report.exit_code)
