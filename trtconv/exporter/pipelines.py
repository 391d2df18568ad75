"""`trtconv export` of several parts: their files, the whole of them, the weights that they share, and the manifest."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from trtconv.core.documents.export import ExportReport
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.pipeline import ENDING, PartFile, PartKind, PartRecord, PartTensor, PipelineDocument
from trtconv.core.errors import InputError
from trtconv.core.files import with_ending
from trtconv.core.outputs import Output, check_all
from trtconv.core.reading import sha256_of
from trtconv.core.requests.files import files_read
from trtconv.core.scratch import Scratch
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.suggest import did_you_mean
from trtconv.exporter.chain import Chaining, ExportedPart
from trtconv.exporter.file import join
from trtconv.exporter.job import Draft
from trtconv.exporter.parts import ExportPart, require_order
from trtconv.exporter.patches.garbage import old_objects_left_out
from trtconv.exporter.report import bounds_of, report_of, written_report
from trtconv.exporter.request import ExportRequest
from trtconv.exporter.translations import translations_of
from trtconv.graph.model import OnnxModel


def export_parts(parts: Sequence[ExportPart], request: ExportRequest, clock: Stopwatch) -> ExportReport:
    """Exports parts in their order and writes MODEL.PART.onnx, MODEL.onnx, MODEL.data and MODEL.pipeline.json.

    Raises:
        InputError: The parts do not fit each other, or the call is about one module.
        ExportFailed: A part, or all of them together, cannot be exported.
    """
    _refuse_flags(request)
    require_order(parts)
    paths = {part.name: request.output.with_name(f"{request.output.stem}.{part.name}.onnx") for part in parts}
    manifest, data = with_ending(request.output, ENDING), with_ending(request.output, ".data")
    check_all([Output(path, "a part", typed=False) for path in (*paths.values(), manifest, data)], files_read(request))
    translations = translations_of(request.options.translations)
    with Scratch("export") as folder, old_objects_left_out():
        chaining = Chaining(request.options, request.dims, clock, folder.path)
        for part in parts:
            chaining.add(part, translations)
        _require_known(request, chaining)
        links = chaining.links
        reports = {link.part.name: report_of(link.job, request.spec, link.draft) for link in links}
        failed = [name for link in links if link.draft.proof.failed for name in [link.part.name]]
        if failed:
            return dataclasses.replace(reports[failed[0]], parts=reports, exit_code=1)
        with clock.stage(Stage.FINISH):
            saved = join.shared_weights([link.draft for link in links], folder.path / data.name)
        job, draft = chaining.whole()
        report = dataclasses.replace(report_of(job, request.spec, draft), parts=reports)
        if draft.proof.failed:
            return dataclasses.replace(report, exit_code=1)
        if saved:
            report = dataclasses.replace(report, notes=(*report.notes, f"{saved} bytes of weights are stored once"))
        with clock.stage(Stage.WRITE):
            _write(paths, links, draft, report, request.output, folder.path / data.name)
    by_part = {
        name: written_report(part_report, paths[name], request.options, clock) for name, part_report in reports.items()
    }
    code = max(part_report.exit_code for part_report in by_part.values())
    output = FileIdentity.of(request.output)
    return dataclasses.replace(report, output=output, parts=by_part, pipeline=str(manifest), exit_code=code)


def _write(
    paths: Mapping[str, Path],
    links: Sequence[ExportedPart],
    draft: Draft,
    report: ExportReport,
    output: Path,
    data: Path,
) -> None:
    """Writes the parts, the whole, the weights and the manifest: all or none."""
    protos = {paths[link.part.name]: link.draft.proto for link in links}
    contents = {output: draft.proto.SerializeToString()}
    contents |= {path: proto.SerializeToString() for path, proto in protos.items()}
    draft.path.write_bytes(contents[output])
    identity = FileIdentity(str(output), OnnxModel.load(draft.path).digest(), len(contents[output]))
    document = _document(identity, draft.proto, protos, contents, report)
    document = dataclasses.replace(document, data=PartFile(data.name, sha256_of(data)))
    contents[with_ending(output, ENDING)] = (json.dumps(document.to_json(), indent=2) + "\n").encode()
    join.write_joined(contents, data, output.with_name(data.name))


def _refuse_flags(request: ExportRequest) -> None:
    for flag, is_set in (
        ("--input", bool(request.inputs)),
        ("--dynamic", bool(request.dynamic)),
        ("--output-name", bool(request.options.outputs)),
        ("--weights", request.weights is not None),
        ("--split-branches", request.options.split_branches),
        ("--build", request.build),
    ):
        if is_set:
            hint = (
                "Then: trtconv build MODEL.pipeline.json."
                if flag == "--build"
                else "Say it in trtconv.ExportPart(...)."
            )
            raise InputError(f"{flag} is about one module, and {request.spec} gives several", hint)


def _require_known(request: ExportRequest, chaining: Chaining) -> None:
    """Raises InputError for bounds of a dimension that no part has."""
    names = list(dict.fromkeys(name for axes in chaining.axes.values() for name in axes if name is not None))
    for name in request.dims:
        if name not in names:
            hint = did_you_mean(name, names, f"Dimensions: {', '.join(names) or 'none'}.")
            raise InputError(f"--dim names {name!r}, which is not a dimension of the parts", hint)


def _document(
    identity: FileIdentity,
    whole: onnx.ModelProto,
    protos: Mapping[Path, onnx.ModelProto],
    contents: Mapping[Path, bytes],
    report: ExportReport,
) -> PipelineDocument:
    records = [
        PartRecord(
            PartKind.ONNX,
            path.name,
            hashlib.sha256(contents[path]).hexdigest(),
            tuple(map(_tensor, proto.graph.input)),
            tuple(map(_tensor, proto.graph.output)),
            nodes=len(proto.graph.node),
        )
        for path, proto in protos.items()
    ]
    bounds = bounds_of(report)
    return PipelineDocument(
        identity,
        tuple(records),
        tuple(map(_tensor, whole.graph.input)),
        tuple(map(_tensor, whole.graph.output)),
        profiles=(bounds,) if bounds else (),
        notes=report.notes,
    )


def _tensor(value: onnx.ValueInfoProto) -> PartTensor:
    kind = value.type.tensor_type
    dims = tuple(dim.dim_param or dim.dim_value for dim in kind.shape.dim)
    return PartTensor(value.name, onnx.TensorProto.DataType.Name(kind.elem_type).lower(), dims)
