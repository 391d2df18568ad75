"""`trtconv build`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtconv.cli import options
from trtconv.cli.commands.alone import build_alone, page_output, write_page
from trtconv.cli.commands.farming import build_on, farm_of
from trtconv.cli.commands.many import FOR_ALL, ManyFlags, configured, each_of, for_target, whole
from trtconv.cli.process.isolated import IsolatedCommand, hand_over, isolate
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.process.working import at_work
from trtconv.cli.timing_folder import cache_folder, timing_folder
from trtconv.core.documents.pipeline import is_pipeline
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write, openable, with_ending
from trtconv.core.options import options as declared
from trtconv.core.options import without_unmet
from trtconv.core.outputs import Output, check_all
from trtconv.core.preprocessing import parse_images
from trtconv.core.reading import sha256_of
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import FarmRequest
from trtconv.core.requests.files import files_read
from trtconv.core.requests.quantize import QuantizeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from trtconv.core.config import Config


def _requests(
    arguments: options.Flags[BuildRequest], model: str, flags: ManyFlags
) -> tuple[Config | None, list[BuildRequest]]:
    """Returns the builds of a model: as the configuration has them where it lists the model, and as the flags say."""
    target = arguments.values["target"] if "target" in arguments.flags else None
    folder = timing_folder() if arguments.values["timing_cache"] == "auto" else None
    config, (entries,) = configured(flags, [model])
    matches = for_target([entry for entry in entries if entry.build is not None], target)
    pairs = ((arguments.over(entry.build), entry.inherited) for entry in matches if entry.build is not None)
    builds = [without_unmet(request, inherited, arguments.flags) for request, inherited in pairs]
    if len(builds) > 1 and not arguments.flags.isdisjoint(("output", "report")):
        targets = " or ".join(str(build.target or "auto") for build in builds)
        raise InputError(f"{model} has several targets in {config.path if config else ''}", f"Add --target {targets}.")
    builds = [dataclasses.replace(request, model=Path(model)) for request in builds] or [arguments.request(model=model)]
    if "output" in arguments.flags:
        builds = [dataclasses.replace(request, within=None) for request in builds]
    return config, [dataclasses.replace(request, timing_folder=folder) for request in builds]


def _taking_images(request: BuildRequest, flags: Collection[str]) -> BuildRequest:
    """Returns a request whose `--preprocess` is in the network where it has no samples to be about."""
    if "preprocess" not in flags or request.data is not None or request.preprocess is None:
        return request
    if request.images is not None and "images" in flags:
        raise InputError("--preprocess without --data says the same as --images", "Leave one of them out.")
    return dataclasses.replace(request, images=parse_images(request.preprocess, "--preprocess"), preprocess=None)


_QUANTIZING = ("data", "preprocess", "error_budget", "attention", "metric", "tolerance")
"""The options of a build that are about the quantisation which `--data` asks for."""
QUANTIZED_ENDING = ".int8.onnx"
"""What follows the engine's name in that of the model which `--data` quantises."""


@click.command(
    "build",
    cls=IsolatedCommand,
    alone=lambda params: params["model"] is not None and params["on"] is None,
    hands_over=True,
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
  From a float model to an int8 engine; also writes gan.int8.onnx:
    trtconv build gan.onnx --precision int8 --data samples/
  On the machines that have the GPUs (docs/farm.md), and measured there:
    trtconv build unet.onnx --dim batch=1 --dim height=256 --dim width=256 --target tensorrt-10@rtx-4090 \\
      --on tls://farm:8786 --keys keys --then verify,bench
  A detector with its NonMaxSuppression, which stays with ONNX Runtime; writes yolo.pipeline.json (docs/partition.md):
    trtconv build yolo.onnx --partition
  The parts of an export of several modules (docs/export.md):
    trtconv build tts.pipeline.json
  An engine that takes images as cameras give them (docs/images.md):
    trtconv build resnet.onnx --preprocess image=1080x1920,letterbox=114,scale=1/255 --postprocess argmax
  In a script:
    trtconv build unet.onnx --dim batch=1 --dim height=256 --dim width=256 --format json -q | jq -e .engine.bytes

\b
Exit status: 0 built, or up to date; 1 the model failed; 2 a bad call or an unreadable model;
4 the runtime or GPU is missing.
""",
)
@click.argument("model", metavar="[MODEL]", required=False)
@options.for_models
@options.asking(BuildRequest)
@options.asking(FarmRequest)
@click.option("--page", metavar="FILE.html", help="Write a page about the engine too; see trtconv report.")
@options.format_option("text", "json")
@options.many_options
def command(
    arguments: options.Flags[BuildRequest],
    farming: options.Flags[FarmRequest],
    model: str | None,
    page: str | None,
    **many: Any,
) -> Outcome:
    """Convert an ONNX model into a TensorRT engine.

    MODEL is an .onnx file, with its external data beside it; it is never written. It is rewritten in memory where
    TensorRT would refuse or misread a node, parsed by TensorRT's own parser, audited (every deconvolution in the
    parsed network is compared with what ONNX says it computes) and built.

    Without MODEL, every model that trtconv.toml or pyproject.toml lists is built, several at a time, or with --target
    those that it lists for that target. What it says of a
    MODEL holds where the command line does not say otherwise.

    The engine and its report, ENGINE.json, appear whole or not at all. An engine whose model, plan and runtime have
    not changed is kept. Every dynamic dimension needs bounds; without them the command lists the dimensions and what
    to add.
    """
    flags = ManyFlags(**many)
    if model is None:
        arguments.refuse_single("force", "sign", "target", *FOR_ALL)
        if page is not None:
            raise InputError("--page goes with a MODEL", "trtconv report FOLDER writes one page about many engines.")
        target = arguments.values["target"] if "target" in arguments.flags else None
        return _build_listed(flags, arguments.over, farming, target)
    listing, requests = _requests(arguments, model, flags)
    requests = [_taking_images(request, arguments.flags) for request in requests]
    names_farm = farming.flags or (listing is not None and listing.address is not None)
    farm = farm_of(farming, listing) if names_farm else None
    if requests[0].partition or is_pipeline(requests[0].model):
        if farm is not None or page is not None or len(requests) > 1:
            raise InputError(
                "the parts of one model are built on this machine, for one target",
                "Leave out --on and --page, and add --target where the configuration has several.",
            )
        return _build_pipeline(flags, requests[0])
    if farm is not None:
        return _build_on_farm(farm, requests, flags, listing, only=page is None and "data" not in arguments.flags)
    if "data" in arguments.flags and requests[0].precision == "int8":
        return _quantize_and_build(flags, requests, arguments.flags, page)
    if len(requests) > 1:
        if page is not None:
            raise InputError(f"{model} has several targets, and --page writes of one", "Add --target.")
        isolate()
        return each_of(requests, flags, listing)
    return hand_over(build_alone, flags, requests[0], page)


def _build_pipeline(flags: ManyFlags, request: BuildRequest) -> Outcome:
    """Builds the parts of a manifest, or what TensorRT takes of one model, and tells of each part."""
    from trtconv.cli.formats.pipeline import pipeline_text
    from trtconv.pipeline.part_builds import build_parts
    from trtconv.pipeline.part_files import Names
    from trtconv.pipeline.partitioning import build_pipeline

    isolate()
    is_manifest = is_pipeline(request.model)
    with at_work(flags.quiet, request.model if is_manifest else Names.of(request).document) as progress:
        report = (build_parts if is_manifest else build_pipeline)(request, progress)
    return Outcome.of(report, flags.output_format, lambda pipeline: pipeline_text(pipeline, flags.verbose))


def _build_listed(
    flags: ManyFlags,
    over: Callable[[BuildRequest], BuildRequest],
    farming: options.Flags[FarmRequest],
    target: str | None,
) -> Outcome:
    """Builds every model of the configuration, or those for a target; `over` adds what the command line says."""
    config = whole(flags)
    folder = timing_folder()
    requests = [build for build in config.builds if target in (None, str(build.target or "auto"))]
    if not requests:
        targets = ", ".join(dict.fromkeys(str(build.target or "auto") for build in config.builds))
        raise InputError(f"{config.path} lists no model for --target {target}", f"It has the targets {targets}.")
    builds = [dataclasses.replace(over(build), timing_folder=folder) for build in requests]
    farm = farm_of(farming, config)
    return each_of(builds, flags, config) if farm is None else build_on(farm, builds, flags, config)


def _build_on_farm(
    farm: FarmRequest, requests: list[BuildRequest], flags: ManyFlags, config: Config | None, only: bool
) -> Outcome:
    isolate()
    if not only:
        raise InputError("--data and --page are not for a farm", "Run trtconv quantize before, or report after it.")
    return build_on(farm, requests, flags, config, alone=len(requests) == 1)


def _divided(request: BuildRequest, flags: Collection[str]) -> tuple[QuantizeRequest, BuildRequest]:
    """Returns what `--data` asks of quantize, and of the build of the model that it writes.

    Args:
        request: The build of a float model in int8.
        flags: Names of the flags that the command line has; what the configuration says is for precision auto.
    """
    settings = {name: getattr(request, name) for name in _QUANTIZING if name in flags}
    quantizing = QuantizeRequest(
        model=request.model,
        output=with_ending(request.engine_path, QUANTIZED_ENDING),
        dims=request.dims,
        target=request.target,
        cache=cache_folder("calibration"),
        **settings,
    )
    usual = {name: option.default for name, option in declared(BuildRequest) if name in settings}
    # The engine goes where it would without --data.
    return quantizing, dataclasses.replace(request, model=quantizing.output, engine=request.engine_path, **usual)


@contextlib.contextmanager
def _as_old_as_its_bytes(path: Path) -> Iterator[None]:
    """Has a file that is written again with the same bytes keep its age: what was built of it is up to date."""
    before = _sums(path)
    ages = {file: file.stat() for file in before}
    yield
    if before and _sums(path) == before:
        for file, age in ages.items():
            os.utime(file, ns=(age.st_atime_ns, age.st_mtime_ns))


def _sums(path: Path) -> dict[Path, str]:
    """Returns the SHA-256 of a model's file, and of that of its weights where they lie beside it."""
    return {file: sha256_of(file) for file in (path, path.with_name(f"{path.name}.data")) if file.is_file()}


def _quantize_and_build(
    flags: ManyFlags, requests: list[BuildRequest], names: Collection[str], page: str | None
) -> Outcome:
    """Quantises the model into a file beside the engine, and builds that."""
    from trtconv.cli.formats import json, text
    from trtconv.cli.formats.quantize import quantize_text
    from trtconv.pipeline.building import build
    from trtconv.pipeline.quantizing import quantize

    isolate()
    request = requests[0]
    if len(requests) > 1:
        raise InputError(f"{request.model} has several targets, and --data quantises it for one", "Add --target.")
    pages = [] if page is None else [openable(Path(page))]
    quantizing, building = _divided(request, names)
    quantised = Output(quantizing.output, "the quantised model", typed=False, within=request.within)
    record = request.report_path.with_name(f"{request.report_path.name.removesuffix('.json')}.quantize.json")
    record_output = Output(record, "what was quantised", typed=False, within=request.within)
    check_all([*request.outputs, quantised, record_output, *map(page_output, pages)], files_read(request))
    with at_work(flags.quiet, quantizing.output, record, request.engine_path, request.report_path, *pages) as progress:
        with _as_old_as_its_bytes(quantizing.output):
            quantized = quantize(quantizing, progress)
        message, exit_code = quantize_text(quantized), quantized.exit_code
        document = {"quantization": quantized.to_json(), "exit_code": exit_code}
        if not exit_code:
            # The page that report makes later has what it tells.
            atomic_write(record, f"{json.render(quantized.to_json())}\n".encode(), through_links=True)
            report = build(building, progress)
            document, exit_code = {**report.to_json(), "quantization": quantized.to_json()}, report.exit_code
            message = f"{message}\n\n{text.build_text(report, flags.verbose)}"
            for path in pages:
                write_page(path, request, report)
    return Outcome(json.render(document) if flags.output_format == "json" else message, exit_code)
