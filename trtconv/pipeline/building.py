"""The way of a model through the house: load, rules, rewrite, parse, audit, build, prove, write."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from trtconv.core import foreign
from trtconv.core.documents.best_of import BestOf
from trtconv.core.documents.build import BuildPlan, BuildReport
from trtconv.core.documents.tuned import Tuned
from trtconv.core.errors import BuildFailed, InputError
from trtconv.core.files import source_checksum
from trtconv.core.findings import Finding, Severity
from trtconv.core.frozen import frozen
from trtconv.core.hashing import Hashing
from trtconv.core.options import refuse_unmet, shared
from trtconv.core.progress import Progress
from trtconv.core.requests.base import takes_request
from trtconv.core.requests.build import BuildRequest, BuildSettings
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.graph.fitting import reloaded
from trtconv.graph.inner_tensors import tensors_meant
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.extending.added import admit, code_of, require_proof, require_rules
from trtconv.pipeline.freed import freed_otherwise
from trtconv.pipeline.mended import explained
from trtconv.pipeline.outputs import (
    Stale,
    asked_profiles,
    cache_findings,
    check_outputs,
    file_identity,
    measured,
    model_identity,
    named_cache,
    protect_data,
    standing,
    timing_cache,
    with_network,
    write_engine,
)
from trtconv.pipeline.parse import (
    affordable,
    build_in_thread,
    fails,
    findings_of,
    parse_model,
    refused_with_tactics,
    start,
    told_level,
)
from trtconv.pipeline.preparation import ParserInput, Preparation, passes_of, promise_of, unused
from trtconv.pipeline.racing import best_build, builds_of, require_gpu, require_race
from trtconv.pipeline.respelling import Forms, RefusedNetwork
from trtconv.precision import Applied, Types
from trtconv.runtimes.foreign_nodes import typed_model, write_types
from trtconv.runtimes.proof.proving import NetworkProof
from trtconv.runtimes.proof.subject import ProofSubject
from trtconv.runtimes.tensorrt import EngineBlob, ParsedNetwork, Runtime, RuntimeInfo
from trtconv.runtimes.tensorrt.early.runtime import EarlyRuntime, is_begun, runtime_of


@takes_request
def build(request: BuildRequest, progress: Progress | None = None) -> BuildReport:
    """Converts an ONNX model into a TensorRT engine, and writes the engine and its report.

    Args:
        request: What to build, from what, and where to.
        progress: Told of the stages.

    Returns:
        The report. Its exit_code is 1 where the model failed (a finding at or above `fail_on`, or TensorRT refused it);
        the engine that was there before is then left as it was, and only an explicitly asked for report is written.

    Raises:
        InputError: A bad request, an unreadable model, or an output that cannot be written.
        EnvironmentMissing: The runtime that was asked for is not here.
    """
    refuse_unmet(request)
    if request.partition:
        raise InputError("--partition makes several engines", "Call trtconv.build_pipeline instead of trtconv.build.")
    require_proof(request.extend, request.prove)
    with foreign.using(code_of(request)):
        return _build(request, Stopwatch(progress))


def _build(request: BuildRequest, clock: Stopwatch) -> BuildReport:
    with clock.stage(Stage.LOAD):
        check_outputs(request)
        model = typed_model(request.model, request.interface, light=is_begun(request))
        protect_data(model, request.engine_path, request.report_path, *named_cache(request))
    with clock.stage(Stage.RUNTIME):
        engine = runtime_of(request, alone=not model.external_files)
        require_gpu(request.target)
        if request.best_of > 1:
            require_race(engine.info)
    # MEASURE has no time limit: the user's samples may be slow.
    with clock.stage(Stage.PLAN if request.data is None else Stage.MEASURE):
        draft = planned(request, model, engine.info)
        previous = Stale() if request.force else standing(request, draft, model)
    if not isinstance(previous, Stale):
        return previous
    draft = dataclasses.replace(draft, rebuilt=previous.why or None)
    report, blob = build_model(request, model, draft, engine, clock)
    model.require_unchanged_data()
    if blob is not None or request.report is not None:
        report = write_engine(request, report, blob, clock)
    return report


def build_model(
    request: BuildRequest, model: OnnxModel, draft: BuildReport, engine: Runtime, clock: Stopwatch
) -> tuple[BuildReport, EngineBlob | None]:
    """Takes a model through the stages of a build, and writes nothing.

    Args:
        request: What was asked.
        model: The model, which the stages change.
        draft: The report that the build begins with; see `planned`.
        engine: The TensorRT that builds.
        clock: Times the stages.

    Returns:
        The report; and the engine, None where the model failed.
    """
    report, blob = _Work(request, engine, clock).run(model, draft)
    findings, ignored = request.selection.divide(report.findings)
    code = 1 if blob is None else 0
    return dataclasses.replace(report, findings=findings, ignored=ignored, seconds=clock.seconds, exit_code=code), blob


def planned(
    request: BuildRequest, model: OnnxModel, info: RuntimeInfo, cast_by: Mapping[str, str] | None = None
) -> BuildReport:
    """Returns the report that a build begins with: all that determines the engine, and no result.

    Args:
        request: What to build.
        model: Its model, as it was loaded.
        info: The TensorRT that builds, here or on another machine.
        cast_by: Versions of what a cast depends on there; None: those that are here.

    Raises:
        InputError: A dimension has no bounds, or wrong ones; or what is selected or ignored is no rule.
    """
    profiles = asked_profiles(model, request)
    # A family alone means the version that is installed: the plan is then the same however it was asked for.
    target = Target(info.family, request.target.version) if request.target and request.target.version else info.target
    original = profiles if request.rounded or request.split is not None else None
    if not info.capabilities.casts(request.precision, request.node_precisions):
        cast_by = {}
    elif cast_by is None:
        from trtconv.precision import apply

        cast_by = apply.tools()
    code, added = code_of(request), admit(request.extend, request.agree)
    identities = {"plugins": code.plugin_identities, "references": code.reference_identities, "extensions": added}
    plan = BuildPlan(target, profiles, original, cast_by, **identities, **shared(request, BuildSettings))  # type: ignore[arg-type]
    require_rules(request.selection, plan)
    if request.precision == "auto" and (request.data is not None or request.metric is not None):
        # Loaded only here: most builds measure nothing.
        from trtconv.pipeline.mixing import sampled

        plan = dataclasses.replace(plan, sampled=sampled(request, model, profiles))
    report = BuildReport(model_identity(model), plan, info.identity, inputs=model.inputs, images=model.images)
    if request.tactics_of is None and request.before is None:
        return report
    # Loaded only here: most builds let TensorRT choose.
    from trtconv.pipeline.tactics import with_tactics

    return with_tactics(report, request, info)


@frozen
class _Work:
    """A build on its way.

    Args:
        request: What was asked.
        engine: The TensorRT that builds.
        clock: Times the stages.
        forms: Other forms of nodes that the builder refused.
        tuned: What `--tune` chose; None where it has yet to.
    """

    request: BuildRequest
    engine: Runtime
    clock: Stopwatch
    forms: Forms = dataclasses.field(default_factory=dict)
    tuned: tuple[Tuned, ...] | None = None

    def run(self, model: OnnxModel, draft: BuildReport) -> tuple[BuildReport, EngineBlob | None]:
        """Goes through the stages, as far as the model lets it; again with other forms where the builder refuses it.

        Args:
            model: The model, which the stages change.
            draft: The report so far: what is asked.

        Returns:
            The report, with all findings; and the engine, None where the model failed, and the findings say why.
        """
        if draft.images is not None:
            # Loaded only here: most engines take what the model does.
            from trtconv.precision.image_check import compared_images

            with self.clock.stage(Stage.IMAGES):
                draft = dataclasses.replace(draft, images=compared_images(model, draft.images))
        report, outcome = self._once(model, draft)
        if any(choice.form != choice.usual for choice in report.tuned):
            # Loaded only here: most builds tune nothing.
            from trtconv.pipeline.tuned_network import better

            usual = dataclasses.replace(self, tuned=tuple(choice.as_usual for choice in report.tuned))
            report, outcome = better(
                (report, outcome), lambda: usual._once(write_types(reloaded(model)), draft), self.engine, self.clock
            )
        if not isinstance(outcome, RefusedNetwork):
            return report, outcome
        for forms in outcome.other_forms() if self.request.mend and self.request.rewrite else ():
            work = dataclasses.replace(self, forms=forms, tuned=report.tuned)
            mended, engine = work._once(write_types(reloaded(model)), draft)
            if isinstance(engine, EngineBlob):
                return dataclasses.replace(mended, respelled={**draft.respelled, **forms}), engine
        return _with_findings(report, outcome.narrower_offered()), None

    def _once(self, model: OnnxModel, draft: BuildReport) -> tuple[BuildReport, EngineBlob | RefusedNetwork | None]:
        report, prepared = self._prepare(model, draft)
        if prepared is None:
            return report, None
        network, faults = parse_model(model, self.engine, self.clock)
        report = _with_findings(report, prepared.origin.place(explained(faults, report.skipped), model))
        if network is None or self._fails(report):
            return report, None
        report = with_network(report, network, prepared.subject.parsed, prepared.sized.memory)
        with NetworkProof(
            network,
            prepared.subject,
            report.profiles,
            self.request.prove,
            self.request.prove_time,
            prepared.sized.tensor_sizes,
        ) as proof:
            plan = dataclasses.replace(report.plan, io=model.io)
            blob, best = self._build(model, network, prepared, plan, proof)
            if isinstance(blob, RefusedNetwork):
                return report, blob
            report = (
                report if best is None else dataclasses.replace(report, best_of=best, notes=(*report.notes, str(best)))
            )
            report = _with_findings(report, (*blob.findings, *cache_findings(self.request, self.engine.info)))
            hashing = Hashing(blob.data)
            proven, differences = proof.finish(self.clock, self.engine)
        differing = prepared.origin.place(differences, prepared.subject.rewritten)
        report = dataclasses.replace(_with_findings(report, differing), proof=proven, layers=proof.layers)
        # What differs is not written, nor what is not shown where it must be.
        if any(finding.severity is Severity.ERROR for finding in differing):
            return report, None
        io = tuple(tensor.laid_out(model.io) for tensor in (*network.inputs, *network.outputs))
        return dataclasses.replace(
            report, engine=file_identity(self.request.engine_path, blob.data, hashing, blob.tactics), io=io
        ), blob

    def _prepare(self, model: OnnxModel, draft: BuildReport) -> tuple[BuildReport, ParserInput | None]:
        request, capabilities = self.request, self.engine.info.capabilities
        preparation = Preparation(model, self.engine.info.target, self.clock)
        tuned = self._tune(model, draft.plan) if self.tuned is None else self.tuned
        forms = {**draft.respelled, **{choice.node: choice.form for choice in tuned}, **self.forms}
        passes = passes_of(draft.plan, forms)
        judged = preparation.judge(passes, draft.plan, rewritten=self._starter(model, draft))
        covered = request.dims if request.profiles else None
        sized = preparation.size(draft.profiles, rounded=request.rounded, split=request.split, covered=covered)
        plan, edits = dataclasses.replace(draft.plan, profiles=sized.profiles), judged.rewrite.edits
        frees = promise_of(edits, passes).frees_sizes
        otherwise = freed_otherwise(model, sized.profiles) if frees else ()
        report = dataclasses.replace(
            draft,
            plan=plan,
            edits=edits,
            skipped=judged.rewrite.skipped,
            findings=(*sized.milder(judged.findings), *sized.findings, *otherwise),
            tuned=tuned,
            lattice=sized.record,
            notes=(*map(str, tuned), *sized.notes, *told_level(plan, capabilities), *unused(plan, edits)),
        )
        if self._fails(report):
            return report, None
        is_cast = capabilities.casts(plan.precision, plan.node_precisions)
        # What a cast rounds is proven against the model as it was before.
        uncast = model.copy() if is_cast and request.prove != "none" else model
        types, cast = self._cast(preparation, plan)
        report = dataclasses.replace(
            _with_findings(report, cast.findings),
            edits=edits + cast.edits,
            cast=cast.report,
            mix=types.mix,
            pinned=types.pinned,
        )
        report = dataclasses.replace(report, notes=(*report.notes, *map(str, types.pinned)))
        if self._fails(report):
            return report, None
        promise, precision = promise_of(edits, passes), types.precision if is_cast else "as-is"
        subject = ProofSubject(promise, uncast, model, precision, types.sample)
        return report, ParserInput(judged.origin, sized, types, subject)

    def _fails(self, report: BuildReport) -> bool:
        return fails(self.request.selection.divide(report.findings)[0], self.request.fail_on)

    def _tune(self, model: OnnxModel, plan: BuildPlan) -> tuple[Tuned, ...]:
        """Measures which forms are the fastest, where that is asked for."""
        if not self.request.tune or plan.tactics:
            return ()
        # Loaded only here: most builds measure nothing.
        from trtconv.pipeline.tuning import tune

        # What `--precision auto` will find is most often float16 where it pays.
        likely = Types("fp16" if plan.precision == "auto" else plan.precision, plan.node_precisions)
        with self.clock.stage(Stage.TUNE):
            return tune(model, plan, self._builder_plan(plan, likely), self.engine, measured(self.request))

    def _cast(self, preparation: Preparation, plan: BuildPlan) -> tuple[Types, Applied]:
        info = self.engine.info
        if plan.cast_interface and not info.capabilities.casts(plan.precision, {}):
            raise InputError(
                "inputs and outputs are cast only with --precision fp16, bf16 or int8, and not on TensorRT 8",
                "Leave out --cast-io.",
            )
        types = preparation.choose_types(
            plan,
            lambda model, types: self._search_types(model, plan, types),
            by_flags=info.capabilities.builder_precision_flags,
        )
        # The optimum of the first profile is what its author thinks typical.
        profile = plan.profiles[0] if plan.profiles else None
        return types, preparation.cast(types, profile, info.capabilities, interface=plan.cast_interface)

    def _search_types(self, model: OnnxModel, plan: BuildPlan, pinned: Types) -> Types:
        # Loaded only here: most builds measure nothing.
        from trtconv.pipeline.mixing import mixed, samples_of

        samples = samples_of(self.request, model, plan.profiles, settled=True)
        builder_plan = self._builder_plan(plan, pinned)
        mix = mixed(self.request, model, pinned, samples, self.engine, builder_plan, self.clock)
        if plan.cast_interface and mix.precision == "as-is":
            raise InputError(
                f"--precision auto found no types within a tolerance of {mix.tolerance:g}, so that --cast-io has none",
                "Leave out --cast-io, or allow a larger --tolerance.",
            )
        return Types(mix.precision, mix.node_precisions, mix, samples[0], pinned.pinned)

    def _build(
        self, model: OnnxModel, network: ParsedNetwork, prepared: ParserInput, plan: BuildPlan, proof: NetworkProof
    ) -> tuple[EngineBlob | RefusedNetwork, BestOf | None]:
        patterns = plan.options.debug_tensors
        debug_tensors = tensors_meant(model, patterns, "--debug-tensor") if patterns else ()
        plan, count = self._builder_plan(plan, prepared.types, debug_tensors), builds_of(self.request, self.engine)
        # The report names the code, and to read all of it takes a while.
        meanwhile = proof.begin, source_checksum
        try:
            if count == 1:
                return build_in_thread(network, plan, self.clock, meanwhile), None
            must_run = self.request.best_of > 1
            return best_build(network, plan, self.engine, count, self.clock, meanwhile, must_run=must_run)
        except BuildFailed as error:
            findings = (*findings_of(error, model), *(refused_with_tactics() if plan.tactics else ()))
            return RefusedNetwork(findings, model, prepared.sized, plan, self.engine, self.clock), None

    def _starter(self, model: OnnxModel, draft: BuildReport) -> Callable[[], None] | None:
        """Returns what begins to build with what was asked for; None where what follows is to change that."""

        def begin() -> None:
            plan = dataclasses.replace(draft.plan, io=model.io)
            start(model, self._builder_plan(plan, Types(plan.precision)), self.engine, self.clock)

        is_sure = self.request.rewrite and not self.request.rounded and self.request.split is None
        return begin if is_sure and isinstance(self.engine, EarlyRuntime) else None

    def _builder_plan(self, plan: BuildPlan, types: Types, tensors: tuple[str, ...] = ()) -> BuildPlan:
        """Returns what the builder is told: a strongly typed one finds the precision in the graph."""
        info = self.engine.info
        flags = types if info.capabilities.builder_precision_flags else Types()
        options = dataclasses.replace(plan.options, debug_tensors=tensors)
        plan = dataclasses.replace(plan, precision=flags.precision, node_precisions=flags.nodes, options=options)
        return dataclasses.replace(affordable(plan, info.capabilities), timing_cache=timing_cache(self.request, info))


def _with_findings(report: BuildReport, findings: Iterable[Finding]) -> BuildReport:
    return dataclasses.replace(report, findings=(*report.findings, *findings))
