"""Engines of parts that were exported in one go: `trtconv build MODEL.pipeline.json`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from trtconv.core.dims import Range, dynamic_dims
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.pipeline import PartKind, PartRecord, PipelineReport, load_document
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write, with_ending
from trtconv.core.progress import Progress
from trtconv.core.requests.build import BuildRequest
from trtconv.core.suggest import did_you_mean
from trtconv.graph.model import OnnxModel
from trtconv.graph.stored_bounds import stored_bounds
from trtconv.pipeline.building import build
from trtconv.pipeline.partitioning import refuse_single


def build_parts(request: BuildRequest, progress: Progress | None = None) -> PipelineReport:
    """Builds an engine of each part of a manifest that `trtconv export` wrote, and enters them into it.

    Args:
        request: What to build; its model is the manifest. Bounds go to the parts that have the dimension.
        progress: Told of the stages.

    Returns:
        The report. Its exit_code is 1 where an engine failed; the manifest is then left as it was.

    Raises:
        InputError: A bad request, files that are not those of the manifest, or bounds beyond what was exported.
        EnvironmentMissing: The runtime that was asked for is not here.
    """
    _refuse_others(request)
    saved = load_document(request.model)
    if saved.document.plan is not None or len({part.kind for part in saved.document.parts}) > 1:
        raise InputError(
            f"{request.model} was written by build --partition",
            f"Build its model again: trtconv build {saved.model()} --partition.",
        )
    saved.require_data()
    models = [saved.file(part.model) for part in saved.document.parts]
    dims = _divided(request, models)
    reports: list[BuildReport] = []
    parts: list[PartRecord] = []
    for part, path, own in zip(saved.document.parts, models, dims, strict=True):
        engine = with_ending(path, ".engine")
        report = build(dataclasses.replace(request, model=path, engine=engine, dims=own), progress)
        reports.append(report)
        if report.exit_code or report.engine is None:
            return PipelineReport(saved.document, engines=tuple(reports), exit_code=report.exit_code or 1)
        record = dataclasses.replace(part, kind=PartKind.ENGINE, file=engine.name, sha256=str(report.engine.sha256))
        parts.append(dataclasses.replace(record, onnx=part.model))
    profiles = tuple({**profile, **_of(request.dims, profile)} for profile in saved.document.profiles)
    document = dataclasses.replace(saved.document, parts=tuple(parts), runtime=reports[0].runtime, profiles=profiles)
    atomic_write(saved.path, (json.dumps(document.to_json(), indent=2) + "\n").encode())
    current = all(report.up_to_date for report in reports)
    return PipelineReport(document, str(saved.path), tuple(reports), up_to_date=current)


def _refuse_others(request: BuildRequest) -> None:
    refuse_single(request, "a manifest is about several")
    for flag, is_set in (
        ("-o", request.engine is not None),
        ("--profile", bool(request.profiles)),
        ("--split", request.split is not None),
        ("--partition", request.partition),
    ):
        if is_set:
            hint = "Leave it out, or build the parts one by one: MODEL.PART.onnx."
            raise InputError(f"{flag} is about one model, and a manifest is about several", hint)


def _divided(request: BuildRequest, models: Sequence[Path]) -> list[dict[str, Range]]:
    """Returns the bounds that each part gets.

    Raises:
        InputError: A dimension that no part has, or bounds beyond those of the export: what follows from them in later
            parts would not reach so far.
    """
    ranges: list[dict[str, Range]] = []
    dimensions: list[str] = []
    for path in models:
        model = OnnxModel.load(path)
        names = list(dynamic_dims(model.inputs))
        own = _of(request.dims, names)
        for name, bound in stored_bounds(model).items():
            if name in own and (own[name].min < bound.min or own[name].max > bound.max):
                raise InputError(
                    f"--dim {name}={own[name]} is beyond {bound}, for which the parts were exported",
                    f"Export them again with --dim {name}={own[name]}.",
                )
        ranges.append(own)
        dimensions += names
    for name in request.dims:
        if name not in dimensions:
            hint = did_you_mean(name, dimensions, f"Dimensions: {', '.join(dict.fromkeys(dimensions)) or 'none'}.")
            raise InputError(f"--dim names {name!r}, which no part has", hint)
    return ranges


def _of(dims: Mapping[str, Range], names: Collection[str]) -> dict[str, Range]:
    return {name: bound for name, bound in dims.items() if name in names}
