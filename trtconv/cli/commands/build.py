"""`trtconv build`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.builder_flags import NO_BUILDER_FLAGS, BuilderFlags, builder_options, timing_folder
from trtconv.cli.process import status
from trtconv.cli.process.isolated import IsolatedCommand, follow_log
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.frozen import frozen


@frozen
class BuildFlags(options.ManyModels, options.ShapeFlags, BuilderFlags):
    """The command's flags."""

    model: str | None
    output: str | None
    target: str
    precision: str
    cast_io: bool
    report: str | None
    output_format: str
    no_rewrite: bool
    requantize: bool
    fail_on: str
    force: bool
    split: str | None
    rounded: bool
    quiet: bool
    verbose: bool


@click.command(
    "build",
    cls=IsolatedCommand,
    alone=lambda params: params["model"] is not None and params["config"] is None,
    short_help="Convert an ONNX model into a TensorRT engine.",
    epilog="""\b
Examples:
  A model with static shapes; writes gan.engine and gan.engine.json:
    trtconv build gan.onnx
  Dynamic height and width, one optimization profile:
    trtconv build unet.onnx --dim batch=1 --dim height=64:256:512 --dim width=64:256:512 -o unet.engine
  Two profiles that share the batch:
    trtconv build unet.onnx --dim batch=1:1:4 \\
      --profile height=64:128:256,width=64:128:256 \\
      --profile height=256:384:512,width=256:384:512
  Three profiles, divided so that latency is even; sizes moved to what the network accepts:
    trtconv build unet.onnx --dim batch=1 --dim height=64:256:1000 --dim width=64:256:1000 \\
      --split 3 --round
  The same as with trtexec:
    trtconv build unet.onnx --minShapes x:1x3x64x64 --optShapes x:1x3x256x256 --maxShapes x:4x3x512x512
  All models of trtconv.toml (docs/config.md) whose engines are not up to date:
    trtconv build
  In a script:
    trtconv build unet.onnx --dim height=64:256:512 --format json -q | jq .engine.bytes

\b
Exit status: 0 built, or up to date; 1 the model failed; 2 a bad call or an unreadable model;
4 the runtime or GPU is missing.
""",
)
@options.optional_model_argument
@click.option("-o", "--output", metavar="ENGINE", help="Where the engine goes. Default: MODEL with the suffix .engine.")
@options.shape_options
@options.split_option
@options.round_option
@options.target_option
@options.precision_option
@click.option("--cast-io", is_flag=True, help="Give inputs and outputs the precision too; they keep theirs otherwise.")
@click.option("--report", metavar="FILE", help="Where the report goes. Default: ENGINE.json.")
@options.format_option("text", "json")
@options.no_rewrite_option
@options.requantize_option
@options.fail_on_option
@click.option("--force", is_flag=True, help="Build even where model, plan and runtime have not changed.")
@builder_options
@options.many_options
@options.quiet_option
@options.verbose_option
@options.packed(BuildFlags)
def command(flags: BuildFlags) -> Outcome:
    """Convert an ONNX model into a TensorRT engine.

    MODEL is an .onnx file, with its external data beside it; it is never written. It is rewritten in memory where
    TensorRT would refuse or misread a node, parsed by TensorRT's own parser, audited (every deconvolution in the
    parsed network is compared with what ONNX says it computes) and built.

    Without MODEL, every model that trtconv.toml or pyproject.toml lists is built, several at a time.

    The engine and its report, ENGINE.json, appear whole or not at all. An engine whose model, plan and runtime have
    not changed is kept. Every dynamic dimension needs bounds; without them the command lists the dimensions and what
    to add.
    """
    from trtconv.cli.formats import json, text
    from trtconv.core.requests.build import BuildRequest

    if flags.model is None or flags.config is not None:
        return _build_all(flags)
    dims, profiles = flags.bounds()
    request = BuildRequest(
        model=Path(flags.model),
        engine=_path(flags.output),
        dims=dims,
        profiles=profiles,
        target=options.parse_target(flags.target),
        precision=flags.precision,
        cast_interface=flags.cast_io,
        rewrite=not flags.no_rewrite,
        requantize=flags.requantize,
        fail_on=options.severity(flags.fail_on),
        force=flags.force,
        report=_path(flags.report),
        rounded=flags.rounded,
        split=options.parse_split(flags.split),
        values=flags.values(),
        options=flags.builder(),
        timing_cache=flags.cache_file(),
        timing_folder=flags.cache_folder(),
    )
    from trtconv import pipeline

    follow_log()
    for path in (request.engine_path, request.report_path):
        status.announce(status.OUTPUT, str(path.absolute()))
    with show_progress(flags.quiet) as progress:
        report = pipeline.build(request, progress)
    render = json.render(report.to_json()) if flags.output_format == "json" else text.build_text(report, flags.verbose)
    return Outcome(render, report.exit_code)


_OF_ONE_MODEL: dict[str, object] = {
    **options.NO_SHAPES,
    **NO_BUILDER_FLAGS,
    "model": None,
    "output": None,
    "split": None,
    "rounded": False,
    "target": "auto",
    "precision": "as-is",
    "cast_io": False,
    "report": None,
    "no_rewrite": False,
    "requantize": False,
    "fail_on": "error",
}


def _build_all(flags: BuildFlags) -> Outcome:
    from trtconv.cli.commands.many import ManyFlags, build_all

    options.refuse_single_flags(flags, _OF_ONE_MODEL)
    many = ManyFlags(flags.config, flags.jobs, flags.output_format, flags.quiet, flags.verbose)
    return build_all(many, flags.force, timing_folder())


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
