"""The files of a pipeline: what they are called, whether they may be written, and whether they are up to date."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from trtconv.core.dims import Range
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.pipeline import (
    ENDING,
    PartRecord,
    PipelineDocument,
    PipelineReport,
    SavedPipeline,
    is_pipeline,
    load_document,
)
from trtconv.core.documents.saved import load_report
from trtconv.core.errors import InputError
from trtconv.core.files import report_beside, source_checksum, streams_together, with_ending
from trtconv.core.frozen import frozen
from trtconv.core.outputs import Output, check_all
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.common import PROOFS
from trtconv.core.requests.files import files_read
from trtconv.pipeline.outputs import named_cache, of_its_gpu
from trtconv.pipeline.parse import fails
from trtconv.runtimes.tensorrt import EngineBlob

_PART = ".part"
"""What the names of the parts of a pipeline have before their endings."""


@frozen
class BuiltPart:
    """A part of a model, ready to be written.

    Args:
        record: What the document says of it.
        model: Its part of the model, serialized.
        report: The report of its engine; None where it has none.
        blob: The engine.
    """

    record: PartRecord
    model: bytes
    report: BuildReport | None = None
    blob: EngineBlob | None = None


@frozen
class Names:
    """What the files of a pipeline are called.

    Args:
        document: The document, which all others lie beside.
        typed: Whether the user named it.
    """

    document: Path
    typed: bool

    @classmethod
    def of(cls, request: BuildRequest) -> Names:
        """Returns the names of what a request builds: after -o, or after the model."""
        engine = request.engine
        if engine is None or not is_pipeline(engine):
            return cls(with_ending(engine or request.model, ENDING), engine is not None)
        return cls(engine, True)

    def _part(self, number: int, ending: str) -> Path:
        stem = self.document.name.removesuffix(ENDING)
        return self.document.with_name(f"{stem}.{number}{_PART}{ending}")

    def model(self, number: int) -> Path:
        """Returns where the ONNX file of a part goes; the first part has number 1."""
        return self._part(number, ".onnx")

    def engine(self, number: int) -> Path:
        """Returns where the engine of a part goes."""
        return self._part(number, ".engine")


def check_pipeline_outputs(request: BuildRequest, names: Names) -> None:
    """Raises InputError where the document cannot be written, or would replace what is read."""
    caches = [Output(path, "the timing cache", hint="Choose another --timing-cache.") for path in named_cache(request)]
    check_all([Output(names.document, "the pipeline", names.typed, request.within), *caches], files_read(request))


def write_pipeline(request: BuildRequest, names: Names, report: PipelineReport, parts: Sequence[BuiltPart]) -> None:
    """Writes all files of a pipeline, or none, and takes away those of the pipeline that was there before.

    Raises:
        InputError: A file cannot be written, or would replace what trtconv did not write.
    """
    if report.pipeline is None:
        raise ValueError("a pipeline without a document cannot be written")
    contents: dict[Path, bytes | memoryview] = {}
    for number, part in enumerate(parts, 1):
        contents[names.model(number)] = part.model
        if part.blob is not None and part.report is not None:
            contents[names.engine(number)] = part.blob.data
            contents[report_beside(names.engine(number))] = _lines(part.report.to_json())
    before = _saved(names.document)
    ours = [] if before is None else before.files()
    what = "a part of the pipeline"
    outputs = [Output(path, what, typed=False, within=request.within, ours=path in ours) for path in contents]
    check_all(outputs, files_read(request), and_disk=False)
    with streams_together({**dict.fromkeys(contents, False), names.document: names.typed}) as files:
        for file, content in zip(files, (*contents.values(), _lines(report.pipeline.to_json())), strict=True):
            file.write(content)
    if before is not None:
        _remove_others(before, contents.keys())


def _lines(document: object) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def _saved(path: Path) -> SavedPipeline | None:
    try:
        return load_document(path)
    except InputError:
        return None


def _remove_others(before: SavedPipeline, paths: Collection[Path]) -> None:
    """Removes files of an older pipeline that are no longer part of it, unless somebody has changed them."""
    for part in before.document.parts:
        for file in filter(None, (part.runs, part.onnx)):
            path = before.path.parent / file.file
            if path in paths:
                continue
            # A changed file is somebody else's now.
            with contextlib.suppress(InputError, OSError):
                before.file(file).unlink()
                report_beside(path).unlink(missing_ok=True)


def kept_pipeline(
    request: BuildRequest, names: Names, draft: BuildReport, bounds: Mapping[str, Range]
) -> PipelineReport | None:
    """Returns a report of the pipeline that is there, if it was built from just this model, plan and runtime."""
    saved = _saved(names.document)
    if saved is None or _identity(saved.document, draft) != _request_key(request, draft, bounds):
        return None
    try:
        reports = tuple(_report(saved, number) for number in range(len(saved.document.parts)))
        engines = tuple(report for report in reports if report is not None)
    except InputError:
        return None
    proofs = ["none" if report.proof is None else report.proof.level or "none" for report in engines]
    if any(PROOFS.index(request.prove) > PROOFS.index(level) for level in proofs):
        return None
    if any(fails(request.selection.divide(report.findings)[0], request.fail_on) for report in engines):
        return None
    return PipelineReport(saved.document, str(names.document), engines, up_to_date=True)


def _report(saved: SavedPipeline, number: int) -> BuildReport | None:
    """Returns the report of a part's engine, None for one without; all files are those that were written."""
    part = saved.document.parts[number]
    saved.file(part.model)
    path = saved.file(part.runs)
    if part.onnx is None:
        return None
    report = load_report(report_beside(path))
    if not report.is_intact or report.report.engine is None or report.report.engine.sha256 != part.sha256:
        raise InputError(f"{report.path} is not the report of {path}")
    return report.report


def _identity(document: PipelineDocument, draft: BuildReport) -> tuple[object, ...]:
    runtime = document.runtime
    if runtime is not None and not of_its_gpu(draft):
        runtime = dataclasses.replace(runtime, gpu=None)
    plan = None if document.plan is None else document.plan.to_json()
    key = document.trtconv, document.source, plan, runtime, document.model.sha256
    return (*key, document.leave, dict(document.bounds))


def _request_key(request: BuildRequest, draft: BuildReport, bounds: Mapping[str, Range]) -> tuple[object, ...]:
    runtime = draft.runtime if of_its_gpu(draft) else dataclasses.replace(draft.runtime, gpu=None)
    key = draft.trtconv, source_checksum(), draft.plan.to_json(), runtime, draft.model.sha256
    return (*key, request.leave, dict(bounds))
