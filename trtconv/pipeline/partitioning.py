"""`build --partition`: what TensorRT takes becomes engines, what is left stays ONNX, and a document joins them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trtconv.core import foreign
from trtconv.core.bounds import divided_bounds
from trtconv.core.dims import Range, Shape
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.pinned import Pinned
from trtconv.core.documents.pipeline import PartFile, PartKind, PartRecord, PartTensor, PipelineDocument, PipelineReport
from trtconv.core.errors import BuildFailed, InputError
from trtconv.core.files import atomic_write, source_checksum
from trtconv.core.findings import Finding, Severity
from trtconv.core.frozen import frozen
from trtconv.core.node_patterns import is_pattern
from trtconv.core.options import refuse_unmet
from trtconv.core.progress import Progress
from trtconv.core.requests.base import takes_request
from trtconv.core.requests.build import BuildRequest
from trtconv.core.scratch import Scratch
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.graph.divisible import Divisible, hold_outputs
from trtconv.graph.model import OnnxModel
from trtconv.graph.order import sort
from trtconv.graph.sealing import sealed
from trtconv.graph.views import quantizes
from trtconv.pipeline.building import build_model, planned
from trtconv.pipeline.cutting import Cutting, Slice
from trtconv.pipeline.extending.added import code_of
from trtconv.pipeline.outputs import protect_data
from trtconv.pipeline.part_files import BuiltPart, Names, check_pipeline_outputs, kept_pipeline, write_pipeline
from trtconv.pipeline.preparation import Preparation, passes_of, promise_of
from trtconv.pipeline.profiles import Sized
from trtconv.pipeline.racing import require_gpu
from trtconv.pipeline.refusals import Reasons, blamed, is_curable, left_nodes, nodes_of_computed_sizes, refused_nodes
from trtconv.rules.sizes import MISFITS
from trtconv.runtimes import tensorrt
from trtconv.runtimes.observed import Seen, observe, why_not_loaded
from trtconv.runtimes.tensorrt import Runtime

_NO_ENGINE = "trtconv check --partition lists the nodes that no engine takes; those left are too few for an engine."
_LISTED = 5


@takes_request
def build_pipeline(request: BuildRequest, progress: Progress | None = None) -> PipelineReport:
    """Converts as much of a model as TensorRT takes into engines, and writes what joins them with the rest.

    Args:
        request: What to build; its engine, where it names one, says where the document goes and what the files are
            called.
        progress: Told of the stages.

    Returns:
        The report. Its exit_code is 1 where an engine failed for a reason that leaving nodes out does not mend; what
        was there before is then left as it was.

    Raises:
        InputError: A bad request, an unreadable model, or an output that cannot be written.
        EnvironmentMissing: The runtime that was asked for is not here.
        BuildFailed: Nothing that is worth an engine is left.
    """
    refuse_unmet(request)
    refuse_single(request, "--partition builds several")
    with foreign.using(code_of(request)):
        return _build_pipeline(request, Stopwatch(progress))


def _build_pipeline(request: BuildRequest, clock: Stopwatch) -> PipelineReport:
    names = Names.of(request)
    with clock.stage(Stage.LOAD):
        check_pipeline_outputs(request, names)
        model = OnnxModel.load(request.model, hashed=True)
        protect_data(model, names.document)
    with clock.stage(Stage.RUNTIME):
        engine = tensorrt.load(request.target)
        require_gpu(request.target)
    with clock.stage(Stage.PLAN):
        dims, bounds = divided_bounds(model.inputs, request.dims)
        request = dataclasses.replace(request, dims=dims)
        draft = planned(request, model, engine.info)
        previous = None if request.force else kept_pipeline(request, names, draft, bounds)
    if previous is not None:
        return previous
    with Scratch("parts") as scratch:
        report, parts = _Partitioning(request, names, engine, clock, bounds, scratch.path).run(model, draft)
    model.require_unchanged_data()
    if not report.exit_code:
        with clock.stage(Stage.WRITE):
            write_pipeline(request, names, report, parts)
        report = dataclasses.replace(report, path=str(names.document))
    return dataclasses.replace(report, seconds=clock.seconds)


def refuse_single(request: BuildRequest, why: str) -> None:
    """Raises InputError for what is about one engine; `why` says that there are several."""
    for flag, is_set in (
        ("--precision auto", request.precision == "auto"),
        ("--data", request.data is not None),
        ("--tune", request.tune),
        ("--as", request.tactics_of is not None),
        ("--best-of", request.best_of > 1),
        ("--cast-io", request.cast_interface),
        ("--io", bool(request.io)),
        ("--images", request.images is not None),
        ("--postprocess", bool(request.results)),
        ("--sign", request.sign is not None),
        ("--debug-tensor", bool(request.options.debug_tensors)),
        ("--report", request.report is not None),
    ):
        if is_set:
            raise InputError(f"{flag} is about one engine, and {why}", f"Leave out {flag}.")


@frozen
class _Cuttable:
    """What is cut, besides the model.

    Args:
        sized: The profiles.
        file: Returns the model as its file has it; None: nothing was rewritten, or the file means something else.
        pins: Which nodes have types of their own.
    """

    sized: Sized
    file: Callable[[], Divisible] | None
    pins: tuple[Pinned, ...]


@frozen
class _Partitioning:
    """The build of a pipeline on its way.

    Args:
        request: What was asked.
        names: What the files are called.
        engine: The TensorRT that builds.
        clock: Times the stages.
        bounds: Bounds of sizes that only values tell.
        folder: Where the parts lie meanwhile: what proves their engines reads the files.
    """

    request: BuildRequest
    names: Names
    engine: Runtime
    clock: Stopwatch
    bounds: Mapping[str, Range]
    folder: Path

    def run(self, model: OnnxModel, draft: BuildReport) -> tuple[PipelineReport, tuple[BuiltPart, ...]]:
        """Cuts, builds, and cuts again without what turned out to be refused, until all that is left builds."""
        prepared = self._prepare(model, draft)
        sized = prepared.sized
        errors = [finding for finding in sized.findings if finding.severity is Severity.ERROR]
        if errors:
            return PipelineReport(None, findings=tuple(sized.findings), exit_code=1), ()
        target = self.engine.info.target
        reasons = refused_nodes(model, target, self.engine, self.request.leave, self.clock)
        builds: dict[tuple[int, tuple[int, ...]], BuiltPart] = {}
        unbounded: list[str] = []
        while True:
            cutting = self._cut(model, reasons, prepared)
            unbounded += cutting.unbounded
            parts, blame = self._build(cutting, builds, prepared.pins)
            if blame is None:
                failed = tuple(part.report for part in parts if part.report is not None)
                return PipelineReport(None, engines=failed, findings=sized.findings, exit_code=1), ()
            if not blame:
                break
            reasons.update(blame)
        document = self._document(
            draft,
            model,
            parts,
            reasons,
            list(dict.fromkeys(unbounded)),
            tuple(profile.dims for profile in sized.profiles),
        )
        reports = tuple(part.report for part in parts if part.report is not None)
        return PipelineReport(document, engines=reports, findings=sized.findings), parts

    def _prepare(self, model: OnnxModel, draft: BuildReport) -> _Cuttable:
        """Rewrites the model, and settles its sizes and types."""
        preparation = Preparation(model, self.engine.info.target, self.clock)
        judged = preparation.judge(passes := passes_of(draft.plan))
        covered = self.request.dims if self.request.profiles else None
        sized = preparation.size(
            draft.profiles, rounded=self.request.rounded, split=self.request.split, covered=covered
        )
        preparation.name(sorted(set(model.main.columns.ops)))
        pins = self._pins(model)
        sort(model)
        hold_outputs(model)
        promise = promise_of(judged.rewrite.edits, passes)
        # Sizes that were freed are fixed in the file, and codes that were quantised anew mean something else there.
        says_the_same = judged.rewrite.edits and promise.means_the_file and not promise.requantizes
        file = functools.cache(functools.partial(_as_filed, model.path)) if says_the_same else None
        return _Cuttable(sized, file, pins)

    def _pins(self, model: OnnxModel) -> tuple[Pinned, ...]:
        """Returns which nodes have types of their own; raises InputError for types that no node can have."""
        types = self.request.node_precisions
        if not types and self.request.precision != "int8":
            return ()
        # Loaded only here: most builds ask for none.
        from trtconv.precision.apply import require_quantizers
        from trtconv.precision.pinned import pin, refuse_unknown

        if self.request.precision == "int8":
            require_quantizers(model)
        refuse_unknown(model, {name: kind for name, kind in types.items() if not is_pattern(name)})
        return pin(model, types, by_flags=self.engine.info.capabilities.builder_precision_flags)

    def _cut(self, model: OnnxModel, reasons: Reasons, prepared: _Cuttable) -> Cutting:
        def run(names: Sequence[str], sizes: Sequence[Mapping[str, Shape]]) -> list[Seen]:
            return observe(model, names, sizes)

        with self.clock.stage(Stage.SIZES):
            cutting = Cutting(model, reasons, prepared.sized.profiles, self.bounds, run, prepared.file)
        if not any(part.is_engine for part in cutting.slices):
            nodes = "; ".join(f"{node.op} {node.node}: {node.reason}" for node in left_nodes(model, reasons)[:3])
            raise BuildFailed(f"{model.path}: no part of it is enough for an engine ({nodes})", _NO_ENGINE)
        if cutting.unused:
            raise InputError(
                f"--dim {cutting.unused[0]}: no dimension of {model.path}, and no size of what crosses, has that name",
                f"Sizes without bounds are {_some(cutting.unbounded)}.",
            )
        return cutting

    def _build(
        self, cutting: Cutting, cache: dict[tuple[int, tuple[int, ...]], BuiltPart], pins: Sequence[Pinned]
    ) -> tuple[tuple[BuiltPart, ...], Reasons | None]:
        """Builds all parts; returns them, and what to leave out; None for that where leaving out does not help."""
        parts: list[BuiltPart] = []
        for number, part in enumerate(cutting.slices, 1):
            key = number, part.nodes
            candidate = cache.get(key) or self._part(cutting, part, number, pins)
            report = candidate.report
            if report is not None and report.exit_code:
                blame = self._blame(cutting, part, number, report.findings)
                return ((candidate,), None) if blame is None else ((), blame)
            # One that failed is cut otherwise, and would hold its weights for nothing.
            cache[key] = candidate
            parts.append(candidate)
        return tuple(parts), {}

    def _blame(self, cutting: Cutting, part: Slice, number: int, findings: Sequence[Finding]) -> Reasons | None:
        """Returns what to leave out of a part that the builder refuses; None where leaving out does not help."""
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        if not errors:
            return None
        own = OnnxModel(cutting.model_of(part).proto, self.names.model(number))
        places = cutting.origin(part)
        blame = {places[index]: why for index, why in blamed(own, findings).items()}
        fresh = {index: why for index, why in blame.items() if index in part.nodes}
        # Where it names no node: those that hold graphs, about which the builder is most particular.
        bodies = {places[index] for index, _, _ in own.main.columns.bodies()} & set(part.nodes)
        # Sizes that the whole model takes and a part does not are tied by a node that reads what crosses.
        if not is_curable(findings, MISFITS) and (fresh or not bodies):
            return None
        suspects = bodies or {places[index] for index in nodes_of_computed_sizes(own)} & set(part.nodes)
        return fresh or dict.fromkeys(sorted(suspects) or part.nodes, errors[0].message)

    def _part(self, cutting: Cutting, part: Slice, number: int, pins: Sequence[Pinned]) -> BuiltPart:
        """Builds one part."""
        own = cutting.model_of(part)
        data = b"".join(sealed(own.proto, own.serialize))
        digest = hashlib.sha256(data).hexdigest()
        path = self.names.model(number)
        file = PartFile(path.name, digest)
        count = len(part.nodes)
        if not part.is_engine:
            return BuiltPart(PartRecord(PartKind.ONNX, file.file, digest, part.inputs, part.outputs, nodes=count), data)
        atomic_write(self.folder / path.name, data)
        model = OnnxModel.load(self.folder / path.name, hashed=True)
        request = self._request(part, model, number, pins)
        draft = planned(request, model, self.engine.info)
        report, blob = build_model(request, model, draft, self.engine, self.clock)
        report = dataclasses.replace(report, model=FileIdentity(str(path), digest))
        sha256 = "0" * 64 if report.engine is None else str(report.engine.sha256)
        name = request.engine_path.name
        record = PartRecord(PartKind.ENGINE, name, sha256, part.inputs, part.outputs, file, count)
        return BuiltPart(record, data, report, blob)

    def _request(self, part: Slice, model: OnnxModel, number: int, pins: Sequence[Pinned]) -> BuildRequest:
        """Returns what is asked of the engine of a part."""
        nodes = set(model.main.columns.names)
        inputs = {tensor.name for tensor in part.inputs}
        precision = self.request.precision
        return dataclasses.replace(
            self.request,
            model=model.path,
            engine=self.names.engine(number),
            report=None,
            dims={},
            profiles=part.dims,
            values={name: bound for name, bound in self.request.values.items() if name in inputs},
            # Where an int8 engine has layers that are not quantised, it runs these in float16.
            precision="fp16" if precision == "int8" and not quantizes(model) else precision,
            node_precisions={pin.pattern: pin.type for pin in pins if not nodes.isdisjoint(pin.nodes)},
            rounded=False,
            split=None,
            partition=False,
            leave=(),
        )

    def _document(
        self,
        draft: BuildReport,
        model: OnnxModel,
        parts: Sequence[BuiltPart],
        reasons: Reasons,
        unbounded: Sequence[str],
        profiles: tuple[Mapping[str, Range], ...],
    ) -> PipelineDocument:
        notes = [
            f"{part.record.file}: {why}, so that nothing here can run it; what an operator of your own computes says "
            "--reference FILE.py"
            for part in parts
            if part.report is None and (why := why_not_loaded(part.model, self.request.model))
        ]
        if unbounded:
            notes.append(
                f"more goes into engines with bounds of what only values tell: --dim NAME=MIN:OPT:MAX, NAME being one "
                f"of {_some(unbounded)}"
            )
        inputs = tuple(PartTensor(spec.name, spec.dtype, tuple(spec.dims)) for spec in draft.inputs)
        tensors = (*inputs, *(tensor for part in parts for tensor in part.record.outputs))
        by_name = {tensor.name: tensor for tensor in tensors}
        return PipelineDocument(
            FileIdentity(str(self.request.model), draft.model.sha256),
            tuple(part.record for part in parts),
            inputs,
            # A model may list one twice.
            tuple(by_name[name] for name in dict.fromkeys(model.outputs)),
            draft.runtime,
            draft.plan,
            self.request.leave,
            self.bounds,
            profiles,
            left_nodes(model, reasons),
            tuple(notes),
            source_checksum(),
        )


def _as_filed(path: Path) -> Divisible:
    """Returns a model as it lies in its file, its nodes in order."""
    model = OnnxModel.load(path)
    sort(model)
    return Divisible(model, ())


def _some(names: Sequence[str]) -> str:
    """Lists names, the first ones of many."""
    more = len(names) - _LISTED
    return ", ".join((*names[:_LISTED], *([f"and {more} more"] if more > 0 else []))) or "none"
