"""What `trtconv.check` does."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trtconv.core import codes, foreign
from trtconv.core.bounds import divided_bounds, flags_of
from trtconv.core.dims import Range, ShapeProfile, dynamic_dims
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.check import CheckReport, ParserVerdict
from trtconv.core.documents.memory import MemoryRecord
from trtconv.core.documents.pipeline import PlannedCut
from trtconv.core.documents.proof import BuildProof
from trtconv.core.errors import BuildFailed, EnvironmentMissing
from trtconv.core.findings import Finding, Severity
from trtconv.core.options import refuse_unmet, shared
from trtconv.core.progress import Progress
from trtconv.core.requests.base import takes_request
from trtconv.core.requests.build import BuildSettings
from trtconv.core.requests.check import CheckRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.stored_bounds import stored_bounds
from trtconv.graph.views import quantizes
from trtconv.pipeline.extending.added import admit, code_of, require_rules
from trtconv.pipeline.freed import freed_otherwise
from trtconv.pipeline.gpu_memory import short_of_memory
from trtconv.pipeline.mended import after_rules, explained
from trtconv.pipeline.outputs import asked_profiles, model_identity
from trtconv.pipeline.parse import build_in_thread, fails, findings_of, parse_model
from trtconv.pipeline.preparation import Preparation, hand_over, passes_of, promise_of
from trtconv.rules import STANDING
from trtconv.rules.sizes import MISFITS
from trtconv.runtimes import tensorrt
from trtconv.runtimes.foreign_nodes import typed_model
from trtconv.runtimes.proof.proving import ModelSide, NetworkProof
from trtconv.runtimes.proof.subject import ProofSubject
from trtconv.runtimes.tensorrt import Runtime

_SMALL_NETWORK = 64
"""Layers up to which `check` builds an engine to see whether it can: that takes some hundredths of a second."""


@takes_request
def check(request: CheckRequest, progress: Progress | None = None) -> CheckReport:
    """Says what stands between a model and a right engine, without building one.

    Rules look at the model as it is; then, as `build` would, the passes rewrite it in memory, TensorRT's own parser
    reads it where it is installed, and the audit compares the networks. A fault that a pass mends is reported one
    severity lower.

    Args:
        request: The model, and what it is meant for.
        progress: Told of the stages.

    Raises:
        InputError: A bad request or an unreadable model.
        EnvironmentMissing: No runtime is here and no target was named.
    """
    refuse_unmet(request)
    with foreign.using(code_of(request)):
        return _check(request, Stopwatch(progress))


def _check(request: CheckRequest, clock: Stopwatch) -> CheckReport:
    with clock.stage(Stage.LOAD):
        model = typed_model(request.model)
        identity = model_identity(model)
        dims = dynamic_dims(model.inputs)
        request, bounds = _divided(request, model)
        profiles, unbounded = _profiles(request, model)
    with clock.stage(Stage.RUNTIME):
        target, engine = target_and_runtime(request.target)
    preparation, plan = Preparation(model, target, clock), _planned(request, target, profiles)
    require_rules(request.selection, plan)
    offered = _offered(model, target, request)
    judged = preparation.judge(passes := passes_of(plan), plan, STANDING)
    findings = (*judged.findings, *offered)
    # Sizes that do not fit in a static model are the parser's to find, which is faster.
    memory: MemoryRecord | None = None
    if profiles and (dims or request.gpu_memory is not None):
        sized = preparation.size(profiles, covered=request.dims if request.profiles else None)
        findings = (*sized.milder(findings), *sized.findings) if dims else findings
        if promise_of(judged.rewrite.edits, passes).frees_sizes:
            findings += freed_otherwise(model, sized.profiles)
        memory = MemoryRecord(model.nbytes, tuple(sized.memory))
        if request.gpu_memory is not None:
            findings += tuple(short_of_memory(model, sized, request.gpu_memory))
    proof: BuildProof | None = None
    if isinstance(engine, str):
        parser = ParserVerdict(why=engine)
    else:
        subject = ProofSubject(promise_of(judged.rewrite.edits, passes), model, model)
        faults, parser, proof = _try_out(subject, engine, plan, request, clock)
        faults = after_rules(explained(faults, judged.rewrite.skipped), findings)
        findings += _not_told_yet(judged.origin.place(faults, model), findings)
    model.require_unchanged_data()
    active, ignored = request.selection.divide(sorted(findings, key=_worst_first))
    cut = None
    if request.partition:
        cut = _cut(model, target, engine, profiles, bounds, request, clock) if profiles else _no_cut(unbounded)
    code = _exit_code(active, cut, request)
    return CheckReport(identity, target, active, parser, code, ignored, request.fail_on, unbounded, proof, memory, cut)


_OF_SUBSTITUTES = ("NonMaxSuppression", "GridSample")


def _offered(model: OnnxModel, target: Target, request: CheckRequest) -> tuple[Finding, ...]:
    """Returns what could be substituted."""
    if not request.rewrite or not model.has(_OF_SUBSTITUTES):
        return ()
    # Loaded only here: most models have nothing of the kind.
    from trtconv.pipeline.substituting.passes import offers

    return tuple(offers(model, target, request.substitute))


def _profiles(request: CheckRequest, model: OnnxModel) -> tuple[tuple[ShapeProfile, ...], tuple[str, ...]]:
    """Returns the profiles that are asked for, and the dimensions for which there are none."""
    dims = dynamic_dims(model.inputs)
    # All bounds may be left out, and whatever needs them is then not checked; some make a profile like none other.
    bounded = request.dims or request.profiles or dims.keys() <= stored_bounds(model).keys()
    return (asked_profiles(model, request), ()) if bounded else ((), tuple(dims))


def _divided(request: CheckRequest, model: OnnxModel) -> tuple[CheckRequest, Mapping[str, Range]]:
    """Returns the request with bounds of the model's dimensions alone; and those of sizes that only values tell."""
    own, others = divided_bounds(model.inputs, request.dims) if request.partition else (request.dims, {})
    return dataclasses.replace(request, dims=own), others


def _exit_code(findings: Sequence[Finding], cut: PlannedCut | None, request: CheckRequest) -> int:
    """Returns 1 where a build would fail; of one in parts, where it would have no engine, or not all faults are cut."""
    if cut is None:
        return int(fails(findings, request.fail_on))
    from trtconv.pipeline.refusals import is_curable

    return int(
        not cut.has_engine or fails([finding for finding in findings if not is_curable([finding])], request.fail_on)
    )


def _no_cut(unbounded: Sequence[str]) -> PlannedCut:
    """Says what is missing where it cannot be told where a model would be cut."""
    return PlannedCut(
        why=f"where depends on the sizes, and these have no bounds: {', '.join(unbounded)}: add {flags_of(unbounded)}"
    )


def _cut(
    model: OnnxModel,
    target: Target,
    engine: Runtime | str,
    profiles: Sequence[ShapeProfile],
    bounds: Mapping[str, Range],
    request: CheckRequest,
    clock: Stopwatch,
) -> PlannedCut:
    """Says where `build --partition` would cut a model that the passes have been at."""
    # Loaded only here: most models are not cut.
    from trtconv.graph.divisible import hold_outputs
    from trtconv.graph.order import sort
    from trtconv.pipeline.cutting import Cutting, planned_cut
    from trtconv.pipeline.refusals import refused_nodes
    from trtconv.runtimes.observed import observe

    sort(model)
    hold_outputs(model)
    reasons = refused_nodes(model, target, None if isinstance(engine, str) else engine, request.leave, clock)
    with clock.stage(Stage.SIZES):
        cutting = Cutting(model, reasons, profiles, bounds, lambda names, sizes: observe(model, names, sizes))
    return planned_cut(cutting, model, reasons)


def _planned(request: CheckRequest, target: Target, profiles: Sequence[ShapeProfile]) -> BuildPlan:
    added = admit(request.extend, request.agree)
    return BuildPlan(target, tuple(profiles), extensions=added, **shared(request, BuildSettings))


def _not_told_yet(findings: Iterable[Finding], earlier: Sequence[Finding]) -> tuple[Finding, ...]:
    """Leaves out what the builder says of sizes that the lattice has refused already, with the nearest good ones."""
    refused = any(f.code in MISFITS and f.severity is Severity.ERROR for f in earlier)
    return tuple(f for f in findings if not (refused and f.code == codes.PROFILE_INCONSISTENT.code))


def _try_out(
    subject: ProofSubject, engine: Runtime, plan: BuildPlan, request: CheckRequest, clock: Stopwatch
) -> tuple[tuple[Finding, ...], ParserVerdict, BuildProof | None]:
    """Goes as far towards an engine as is cheap, or all the way: parses, audits, asks the builder, builds, proves."""
    verdict = functools.partial(ParserVerdict, engine.info.family, engine.info.version)
    hand_over(subject.parsed)
    is_proven = request.prove != "none"
    with ModelSide(subject, plan.profiles, request.prove) if is_proven else contextlib.nullcontext() as side:
        network, findings = parse_model(subject.parsed, engine, clock)
    if network is None:
        return findings, verdict(not any(finding.code == codes.PARSER_REFUSED.code for finding in findings)), None
    # The parser calls an input that is an output too by another name, for which there is no profile; a rule names it.
    if any(
        -1 in tensor.shape and tensor.name not in profile.inputs
        for tensor in network.inputs
        for profile in plan.profiles
    ):
        return findings, verdict(True, False), None
    with NetworkProof(network, subject, plan.profiles, request.prove, request.prove_time, side=side) as proof:
        proof.begin()
        faults = network.faults(plan) if plan.profiles else ()
        if faults:
            return (*findings, *faults), verdict(True, False), None
        # Whether int8 layers build is for the builder to say, not for the parser.
        telling = network.layer_count <= _SMALL_NETWORK or quantizes(subject.parsed)
        cheap = engine.info.capabilities.builds_without_gpu and telling
        builds = True if plan.profiles and (request.thorough or cheap) else None
        try:
            if builds:
                build_in_thread(network, plan, clock)
        except BuildFailed as error:
            return (*findings, *findings_of(error, subject.parsed)), verdict(True, False), None
        result, differs = proof.finish(clock)
        return (*findings, *differs), verdict(True, builds), result


def target_and_runtime(target: Target | None) -> tuple[Target, Runtime | str]:
    """Returns the target and its runtime, or why there is none: with a version, rules alone can judge.

    Raises:
        EnvironmentMissing: No version was named, so the one that is installed is meant, and none is.
    """
    try:
        engine = tensorrt.load(target)
    except EnvironmentMissing as error:
        if target is None or target.version is None:
            raise
        return target, error.message
    return target if target and target.version else engine.info.target, engine


def _worst_first(finding: Finding) -> tuple[Any, ...]:
    place = finding.location
    return -finding.severity.rank, place.graph, -1 if place.index is None else place.index, finding.code
