"""`trtconv check`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.outcome import Command, Outcome
from trtconv.cli.progress import show_progress

if TYPE_CHECKING:
    from trtconv.plan import CheckReport


@dataclasses.dataclass(frozen=True)
class CheckFlags(options.ShapeFlags):
    """The command's flags."""

    model: str
    target: str
    output_format: str
    no_rewrite: bool
    requantize: bool
    fail_on: str
    quiet: bool


def _as_text(report: CheckReport) -> str:
    from trtconv.report.text import check_text

    return check_text(report)


def _as_json(report: CheckReport) -> str:
    from trtconv.report.json import render

    return render(report.to_json())


FORMATS: dict[str, Callable[[CheckReport], str]] = {"text": _as_text, "json": _as_json}
"""The formats of `--format` and what writes them; the first is the default."""


@click.command(
    "check",
    cls=Command,
    short_help="Tell what TensorRT will not take, or will get wrong, in a model.",
    epilog="""\b
Examples:
  Everything that is wrong with a model, with the TensorRT that is installed:
    trtconv check unet.onnx
  With the sizes it will run at, as build would take them:
    trtconv check unet.onnx --dim height=64:256:512 --dim width=64:256:512
  Against a version that is not installed (rules only, no parser):
    trtconv check unet.onnx --target tensorrt-8.6
  As a gate in CI:
    trtconv check unet.onnx --fail-on warning --format json -q > check.json

\b
Exit status: 0 no finding at or above --fail-on; 1 there is one; 2 a bad call or an unreadable model;
4 the runtime asked for is missing. 'trtconv rule TC101' explains a finding.
""",
)
@options.model_argument
@options.shape_options
@options.target_option
@options.format_option(*FORMATS)
@options.no_rewrite_option
@options.requantize_option
@options.fail_on_option
@options.quiet_option
@options.packed(CheckFlags)
def command(flags: CheckFlags) -> Outcome:
    """Tell what TensorRT will not take, or will get wrong, in a model.

    MODEL is an .onnx file, with its external data beside it. Runs every rule and TensorRT's own parser, and lists
    each unsupported or misread node at once, with its place, its name and what to do. Needs no GPU and builds
    nothing.

    What build mends by rewriting is listed as such and does not fail the check, except for quantisation (TC3xx): that
    belongs mended in the file, because other tools misread it. --no-rewrite judges the model as it is. Bounds may be
    left out: sizes are then not checked.
    """
    from trtconv.plan import CheckRequest

    dims, profiles = flags.bounds()
    request = CheckRequest(
        model=Path(flags.model),
        dims=dims,
        profiles=profiles,
        target=options.parse_target(flags.target),
        rewrite=not flags.no_rewrite,
        requantize=flags.requantize,
        fail_on=options.severity(flags.fail_on),
        values=flags.values(),
    )
    from trtconv import pipeline

    with show_progress(flags.quiet) as progress:
        report = pipeline.check(request, progress)
    return Outcome(FORMATS[flags.output_format](report), report.exit_code)
