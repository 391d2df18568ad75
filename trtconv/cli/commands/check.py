"""`trtconv check`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtconv.cli import options
from trtconv.cli.commands.alone import check_alone
from trtconv.cli.commands.many import (
    CI_FORMATS,
    FOR_ALL,
    ManyFlags,
    check_all,
    configured,
    each_of,
    for_target,
)
from trtconv.cli.process.isolated import IsolatedCommand, hand_over, isolate
from trtconv.cli.process.outcome import Outcome
from trtconv.core.options import without_unmet
from trtconv.core.requests.check import CheckRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtconv.core.config import Config


FORMATS = ("text", "json", *CI_FORMATS)


def _requests(
    arguments: options.Flags[CheckRequest], models: Sequence[str], flags: ManyFlags
) -> tuple[Config | None, list[CheckRequest]]:
    """Returns what is asked of the models: by the configuration where it lists one, and by the flags."""
    target = arguments.values["target"] if "target" in arguments.flags else None
    config, entries = configured(flags, models)
    plain = arguments.request(model=models[0])
    requests: list[CheckRequest] = []
    for model, own in zip(models, entries, strict=True):
        matches = for_target(own, target)
        templates = [
            without_unmet(arguments.over(entry.check), entry.inherited, arguments.flags) for entry in matches
        ] or [plain]
        requests += [dataclasses.replace(request, model=Path(model)) for request in templates]
    return config, requests


@click.command(
    "check",
    cls=IsolatedCommand,
    alone=lambda params: len(params["models"]) == 1,
    hands_over=True,
    epilog="""\b
Examples:
  Everything that is wrong with a model, with the TensorRT that is installed:
    trtconv check unet.onnx
  With the sizes it will run at, as build would take them:
    trtconv check unet.onnx --dim batch=1 --dim height=64:256:512 --dim width=64:256:512
  Against a version that is not installed (rules only, no parser):
    trtconv check unet.onnx --target tensorrt-8.6
  As a gate in CI:
    trtconv check unet.onnx --fail-on warning --format json -q > check.json
  For code scanning, or a CI server's test report; docs/ci.md has whole recipes:
    trtconv check unet.onnx --format sarif -q > trtconv.sarif
    trtconv check unet.onnx --format junit -q > trtconv.xml
  All models of trtconv.toml (docs/config.md):
    trtconv check
  Everything but quantisation and one rule:
    trtconv check unet.onnx --ignore TC3 --ignore TC101

\b
Exit status: 0 no finding at or above --fail-on; 1 there is one; 2 a bad call or an unreadable model;
4 the runtime asked for is missing. 'trtconv rule TC101' explains a finding.
""",
)
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@options.for_models
@options.asking(CheckRequest)
@options.format_option(*FORMATS)
@options.many_options
def command(arguments: options.Flags[CheckRequest], models: tuple[str, ...], **many: Any) -> Outcome:
    """Tell what TensorRT will not take, or will get wrong, in a model.

    MODEL is an .onnx file, with its external data beside it. Runs every rule and TensorRT's own parser, and lists
    each unsupported or misread node at once, with its place, its name and what to do. Needs no GPU and writes
    nothing.

    Exit status 0 means that build with the same arguments would succeed. The builder is asked too where the sizes are
    known; of a large network it tells all only by building it, which --thorough does.

    Several MODELs are checked at the same time, with the same flags. Without any, every model that trtconv.toml or
    pyproject.toml lists is checked. What it says of a MODEL (sizes, targets, findings to ignore) holds where the
    command line does not say otherwise.

    What build mends by rewriting is listed as such and does not fail the check, except for quantisation (TC3xx): that
    belongs mended in the file, because other tools misread it. --no-rewrite judges the model as it is.

    Where no bounds are given at all, dynamic sizes are not checked, and the result says so; bounds for some dimensions
    and not for others are refused, as build refuses them. A --target with a version that is not installed is judged by
    rules alone, and the result says so; one without a version must be installed.
    """
    flags = ManyFlags(**many)
    if not models:
        arguments.refuse_single(*FOR_ALL)
        return check_all(flags, arguments.over)
    config, requests = _requests(arguments, models, flags)
    if len(requests) > 1:
        isolate()
        return each_of(requests, flags, config)
    return hand_over(check_alone, flags, requests[0])
