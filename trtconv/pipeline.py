"""The way of a model through the house: load, rules, rewrite, parse, audit, build, write."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv import precision, runtime
from trtconv.audit import audit
from trtconv.baked import baked_in
from trtconv.errors import BuildFailed, EnvironmentMissing, InputError
from trtconv.files import atomic_write, check_writable, locked, real_path, sha256_of
from trtconv.findings import Finding, Location, Severity, worst
from trtconv.frozen import frozen
from trtconv.model import CONCERNED, OnnxModel, UnsupportedFunctions, data_path, python_line
from trtconv.origin import Origin
from trtconv.passes import PASSES, Pass, PassResult, passes_for, run_passes, select
from trtconv.plan import (
    BuildPlan,
    BuildReport,
    BuildRequest,
    CheckReport,
    CheckRequest,
    RewriteReport,
    RewriteRequest,
    Target,
)
from trtconv.precision import Applied
from trtconv.profiles import Sized, narrower, settle
from trtconv.progress import NullProgress, Progress
from trtconv.reference import QUANTIZED_TOLERANCE, compare_safely, tolerance
from trtconv.rules import CHECKS, RULES, STANDING, run_rules
from trtconv.rules.base import ModelView
from trtconv.rules.deconv_not_int8 import FLOAT_INPUT, DeconvNotInt8, is_quantized
from trtconv.rules.sizes import MISFITS
from trtconv.rules.verdicts import ParserRefused, ProfileInconsistent
from trtconv.runtime import EngineBlob, ParsedNetwork, ParserIssue, Runtime, RuntimeInfo
from trtconv.shapes import Range, Shape, ShapeProfile, dynamic_dims, make_profile

_SMALL_NETWORK = 64
"""Layers up to which `check` builds an engine to see whether it can: that takes some hundredths of a second."""
_PATIENCE_SECONDS = 60.0
"""How long narrower profiles are tried after the builder refused, and how long a refusal may have taken to do so."""


class _Clock:
    """Times the stages and tells the progress of them."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress or NullProgress()
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            with self.progress.stage(name):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


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
    clock = _Clock(progress)
    with clock.stage("load"):
        _check_outputs(request)
        model = OnnxModel.load(request.model, hashed=True)
        _protect_data(model, request.engine_path, request.report_path, *_named_cache(request))
        profiles = _profiles(model, request)
        engine = runtime.load(request.target)
        plan = _plan(request, engine, profiles)
        report = BuildReport(_identity(model), plan, engine.info.to_json(), seconds=clock.seconds, inputs=model.inputs)
        kept = None if request.force else _up_to_date(request, report)
    if kept is not None:
        return kept
    report, blob = _build(request, model, engine, report, clock)
    found, ignored = request.selection.divide(report.findings)
    report = dataclasses.replace(report, findings=found, ignored=ignored)
    if blob is not None or request.report is not None:
        _write(request, report, blob, clock)
    return report


def _write(request: BuildRequest, report: BuildReport, blob: EngineBlob | None, clock: _Clock) -> None:
    """Writes the report and, where there is one, the engine; of two builds into one file both are of the same."""
    with locked(request.engine_path):
        if blob is not None:
            with clock.stage("write"):
                atomic_write(request.engine_path, blob.data)
        atomic_write(request.report_path, (json.dumps(report.to_json(), indent=2) + "\n").encode())


def _build(
    request: BuildRequest, model: OnnxModel, engine: Runtime, report: BuildReport, clock: _Clock
) -> tuple[BuildReport, EngineBlob | None]:
    """Does the work of `build` after loading; every failure of the model becomes findings in the report."""
    done, findings, origin = _prepare(model, engine.info.target, _passes(request), clock)
    with clock.stage("sizes"):
        asked = request.dims if request.profiles else None
        sized = settle(model, report.plan.profiles, rounded=request.rounded, split=request.split, asked=asked)
    report = dataclasses.replace(
        report,
        plan=dataclasses.replace(report.plan, profiles=sized.profiles),
        edits=done.edits,
        skipped=done.skipped,
        findings=findings + sized.findings,
        lattice=sized.lattice.to_json() if sized.lattice.dims else None,
        notes=sized.notes,
    )
    findings = report.findings
    if _fails(request.selection.divide(findings)[0], request.fail_on):
        return dataclasses.replace(report, exit_code=1), None
    with clock.stage("cast"):
        done_cast = _apply_precision(model, request, report, engine)
    report = dataclasses.replace(
        report,
        edits=report.edits + done_cast.edits,
        findings=report.findings + done_cast.findings,
        cast=done_cast.report,
    )
    if _fails(request.selection.divide(done_cast.findings)[0], request.fail_on):
        return dataclasses.replace(report, exit_code=1), None
    network, refused = _parse(model, engine, clock)
    if network is None:
        return _failed(report, origin.place(refused, model)), None
    plan = _builder_plan(report.plan, request, engine)
    try:
        blob = _build_in_thread(network, plan, clock)
    except BuildFailed as error:
        narrower_too = _with_narrower(_findings_of(error), model, sized, plan, engine, clock)
        return _failed(report, narrower_too), None
    report = dataclasses.replace(
        report,
        findings=report.findings + blob.findings + _cache_findings(request, engine.info),
        engine=_file_identity(request.engine_path, blob.data),
        io=(*network.inputs, *network.outputs),
    )
    return report, blob


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
    request.selection.require({rule.code: rule.name for rule in RULES})
    clock = _Clock(progress)
    with clock.stage("load"):
        model = OnnxModel.load(request.model, hashed=True)
        identity = _identity(model)
        dims = dynamic_dims(model.inputs)
        # All bounds may be left out, and whatever needs them is then not checked; some make a profile like none other.
        bounded = request.dims or request.profiles or not dims
        profiles = _profiles(model, request) if bounded else ()
        target, engine = _target_and_runtime(request.target)
    _, findings, origin = _prepare(model, target, _passes(request), clock, STANDING)
    # Sizes that do not fit in a static model are the parser's to find, which is faster.
    if profiles and dims:
        with clock.stage("sizes"):
            findings += settle(model, profiles, asked=request.dims if request.profiles else None).findings
    parser: dict[str, Any] = {"runtime": None, "version": None, "accepted": None, "built": None, "why": None}
    if isinstance(engine, str):
        parser["why"] = engine
    else:
        plan = BuildPlan(target, profiles)
        verdict = _try_out(model, engine, plan, request.thorough, clock)
        findings += _not_told_yet(origin.place(verdict.findings, model), findings)
        parser |= {
            "runtime": engine.info.family,
            "version": engine.info.version,
            "accepted": verdict.accepted,
            "built": verdict.built,
        }
    kept, ignored = request.selection.divide(sorted(findings, key=_worst_first))
    exit_code = 1 if _fails(kept, request.fail_on) else 0
    unbounded = () if bounded else tuple(dims)
    return CheckReport(identity, target, kept, parser, exit_code, ignored, request.fail_on, unbounded)


def _not_told_yet(found: Iterable[Finding], told: Sequence[Finding]) -> tuple[Finding, ...]:
    """Leaves out what the builder says of sizes that the lattice has refused already, with the nearest good ones."""
    refused = any(f.code in MISFITS and f.severity is Severity.ERROR for f in told)
    return tuple(f for f in found if not (refused and f.code == ProfileInconsistent.code))


@frozen
class _Verdict:
    """What the installed TensorRT says of a model: whether it parses, and whether it builds (None: not tried)."""

    findings: tuple[Finding, ...]
    accepted: bool
    built: bool | None = None


def _try_out(model: OnnxModel, engine: Runtime, plan: BuildPlan, thorough: bool, clock: _Clock) -> _Verdict:
    """Goes as far towards an engine as is cheap, or all the way: parses, audits, asks the builder, builds."""
    network, refused = _parse(model, engine, clock)
    if network is None:
        return _Verdict(refused, not any(finding.code == ParserRefused.code for finding in refused))
    if not plan.profiles:
        return _Verdict((), True)
    faults = network.faults(plan)
    if faults:
        return _Verdict(faults, True, False)
    cheap = engine.info.capabilities.builds_without_gpu and network.layer_count <= _SMALL_NETWORK
    if not thorough and not cheap:
        return _Verdict((), True)
    try:
        _build_in_thread(network, plan, clock)
    except BuildFailed as error:
        return _Verdict(_findings_of(error), True, False)
    return _Verdict((), True, True)


def rewrite(request: RewriteRequest, progress: Progress | None = None) -> RewriteReport:
    """Writes the model as the passes make it, after running both on ONNX Runtime.

    Args:
        request: The model, the passes, and where the result goes.
        progress: Told of the stages.

    Returns:
        The report; its exit_code is 1 where the rewritten model computes something else (nothing is written then).

    Raises:
        InputError: A bad request, an unreadable model, or an output that cannot be written.
    """
    clock = _Clock(progress)
    with clock.stage("load"):
        if real_path(request.output) == real_path(request.model):
            raise InputError(f"{request.output} is the model itself", "Write to another file.")
        passes = _selected(request)
        original, model = OnnxModel.load(request.model), OnnxModel.load(request.model, hashed=True)
        _protect_data(original, request.output, data_path(request.output))
        check_writable(request.output)
        target = request.target or _target_and_runtime(None)[0]
    with clock.stage("rewrite"):
        done = run_passes(model, passes, target)
    with clock.stage("verify"):
        unchanged: dict[str, Any] = {"max_relative_error": 0.0, "why": "nothing was rewritten", "inputs": {}}
        edited = _edited(done, passes)
        resized = any(each.frees_sizes for each in edited)
        traced, further = _examples(original, model) if resized else ([], [])
        verified = (
            compare_safely(original, model, resized=resized, traced=traced, further=further) if edited else unchanged
        )
    error = verified["max_relative_error"]
    # An infinite error means other shapes or no results: no request to change numbers allows that.
    if error is not None and (error > _tolerance(original, edited) or math.isinf(error)):
        return RewriteReport(_identity(original), {}, done.edits, done.skipped, verified, exit_code=1)
    with clock.stage("write"):
        model.save(request.output)
    output = {"path": str(request.output), "sha256": sha256_of(request.output), "bytes": request.output.stat().st_size}
    return RewriteReport(_identity(original), output, done.edits, done.skipped, verified)


_Shapes = list[Mapping[str, Shape]]


def _examples(original: OnnxModel, rewritten: OnnxModel) -> tuple[_Shapes, _Shapes]:
    """Returns the input shapes that a model was traced at, where these are baked into it, and those that were freed."""
    examples = baked_in(original).examples()
    multiples = baked_in(rewritten).accepted(examples[0].multiples()) if examples else []
    return [_shapes_at(original, each.point) for each in examples], [_shapes_at(original, each) for each in multiples]


def _shapes_at(model: OnnxModel, point: Mapping[str, int]) -> Mapping[str, Shape]:
    profile = make_profile(model.inputs, {name: Range(size, size, size) for name, size in point.items()})
    return {name: shapes.opt for name, shapes in profile.inputs.items()}


def _edited(done: PassResult, passes: Sequence[Pass]) -> list[Pass]:
    names = {edit.pass_name for edit in done.edits}
    return [each for each in passes if each.name in names]


def _tolerance(original: OnnxModel, edited: Sequence[Pass]) -> float:
    """Returns the relative error beyond which a rewrite is none; infinite where numbers were asked to change."""
    # Another order of float sums, which is all that an exact pass makes, moves a value that is then quantised by a step
    # here and there, as passes within tolerance do.
    safe = {"exact": tolerance(original), "within tolerance": QUANTIZED_TOLERANCE}
    return max((safe.get(each.safety, math.inf) for each in edited), default=0.0)


def _selected(request: RewriteRequest) -> tuple[Pass, ...]:
    chosen = select(PASSES, request.only, request.skip)
    asked = [each for each in PASSES if each.flag and getattr(request, each.flag) and each.name not in request.skip]
    return tuple(each for each in PASSES if each in chosen or each in asked)


def _passes(request: BuildRequest | CheckRequest) -> tuple[Pass, ...]:
    """Returns the passes of a request: none, the usual ones, or those with what its flags ask for."""
    if not request.rewrite:
        return ()
    precision = request.precision if isinstance(request, BuildRequest) else "as-is"
    return passes_for(precision, requantize=request.requantize)


def _prepare(
    model: OnnxModel,
    target: Target,
    passes: Sequence[Pass],
    clock: _Clock,
    standing: frozenset[str] = frozenset(),
) -> tuple[PassResult, tuple[Finding, ...], Origin]:
    """Runs rules and passes; what the rules no longer find afterwards was mended. Also returns where nodes were.

    A mended finding becomes milder by one severity, unless its code is in `standing`.
    """
    # Findings before and after the passes, edits and TensorRT's layers are told apart by these names.
    model.name_nodes("ConvTranspose")
    origin = Origin(model)
    with clock.stage("rules"):
        judged = _inlined(model)
        before = run_rules(judged, target)
        if judged is not model:
            before = origin.place(before, judged)
    with clock.stage("rewrite"):
        done = run_passes(model, passes, target)
    if not done.edits:
        return done, _declined(before, done, passes), origin
    with clock.stage("rules"):
        after = _with_first_reasons(before, origin.place(run_rules(model, target), model), model)
    left = {_fault(finding) for finding in after}
    # What was only worth knowing of the model as it was is of no interest once it is otherwise.
    gone = (f for f in before if _fault(f) not in left and f.severity is not Severity.INFO)
    mended = tuple(_mended(finding, passes, standing) for finding in gone)
    return done, mended + _declined(after, done, passes), origin


def _declined(findings: Iterable[Finding], done: PassResult, passes: Sequence[Pass]) -> tuple[Finding, ...]:
    """Returns what is left after passes that would mend it, told to do by hand what they did not, and why."""
    by_hand = {rule.code: rule.by_hand for rule in CHECKS if rule.by_hand}
    said: dict[str, dict[str, set[str]]] = {}
    for skip in done.skipped:
        said.setdefault(skip.pass_name, {}).setdefault(skip.node, set()).add(skip.reason)
    told = []
    for finding in findings:
        names = {each.name for each in passes if finding.code in each.fixes}
        if names and finding.code in by_hand:
            why = _reason([said[name] for name in names & said.keys()], finding.location.node)
            finding = dataclasses.replace(finding, fix=by_hand[finding.code] + why)
        told.append(finding)
    return tuple(told)


def _reason(said: Sequence[Mapping[str, set[str]]], node: str) -> str:
    """Returns why passes left a node as it is, where they said so of it, or one thing of all that they left.

    Args:
        said: For each pass the names of the nodes that it left, and why.
        node: The node's name.
    """
    reasons = set().union(*(each.get(node, ()) for each in said))
    if not reasons:
        reasons = set().union(*(why for each in said for why in each.values()))
    return f" trtconv leaves it as it is: {reasons.pop()}." if len(reasons) == 1 else " trtconv leaves it as it is."


def _with_first_reasons(before: Sequence[Finding], after: Sequence[Finding], model: OnnxModel) -> tuple[Finding, ...]:
    """Returns what is left after the passes, with why a deconvolution runs in float told of the model as it was.

    A pass that computes quantisers or weights in float takes the traces of the reason away, but not the reason.
    """
    code = DeconvNotInt8.code
    quantized = {node.node.name for node in ModelView(model).deconvs if is_quantized(node)}
    given = {_fault(f): f for f in before if f.code == code}
    left = {_fault(f): f for f in after if f.code == code}
    kept = [given.get(key, f) if FLOAT_INPUT in f.message else f for key, f in left.items()]
    folded = [f for key, f in given.items() if key not in left and f.location.node not in quantized]
    return (*(f for f in after if f.code != code), *kept, *folded)


def _inlined(model: OnnxModel) -> OnnxModel:
    """Returns the model with the functions inlined that hold what rules are about; inside one they see no constants."""
    if not model.proto.functions:
        return model
    copy = model.copy()
    with contextlib.suppress(UnsupportedFunctions):
        copy.inline_functions_with(*CONCERNED)
    return copy


def _fault(finding: Finding) -> tuple[str, str, str, str]:
    """Returns what makes two findings the same fault, also after nodes have moved."""
    place = finding.location
    return finding.code, place.graph, place.node or str(place.index), place.tensor


def _mended(finding: Finding, passes: Sequence[Pass], standing: frozenset[str]) -> Finding:
    by = next((each.name for each in passes if finding.code in each.fixes), None)
    milder = Severity.WARNING if finding.severity is Severity.ERROR else Severity.INFO
    severity = finding.severity if finding.code in standing else milder
    return dataclasses.replace(finding, severity=severity, mended_by=by)


def _parse(model: OnnxModel, engine: Runtime, clock: _Clock) -> tuple[ParsedNetwork | None, tuple[Finding, ...]]:
    """Parses and audits; returns the network, or why there is none to trust."""
    with clock.stage("parse"):
        # What stays in a function cannot be audited; the audit then says so.
        with contextlib.suppress(UnsupportedFunctions):
            model.inline_functions_with("ConvTranspose")
        model.name_nodes("ConvTranspose")
        parsed = engine.parse(model.serialize(), model.path)
    if isinstance(parsed, tuple):
        return None, tuple(_refusal(model, issue) for issue in parsed)
    with clock.stage("audit"):
        differences = audit(model, parsed)
    return (None, differences) if differences else (parsed, ())


def _refusal(model: OnnxModel, issue: ParserIssue) -> Finding:
    inside = f" (inside {', '.join(issue.inside)})" if issue.inside else ""
    known = 0 <= issue.node_index < len(model.proto.graph.node)
    source = python_line(model.proto.graph.node[issue.node_index]) if known else ""
    index = issue.node_index if known else None
    place = Location(index=index, node=issue.node_name, op=issue.op, source=source)
    fix = "Replace the operator, or change what the message names."
    message = f"TensorRT's parser refuses it{inside}: {issue.message}"
    return Finding(ParserRefused.code, ParserRefused.name, message, Severity.ERROR, place, fix)


def _apply_precision(model: OnnxModel, request: BuildRequest, report: BuildReport, engine: Runtime) -> Applied:
    info = engine.info
    if request.cast_interface and not precision.casts(request.precision, info.capabilities):
        raise InputError(
            "inputs and outputs are cast only with --precision fp16, bf16 or int8, and not on TensorRT 8",
            "Leave out --cast-io.",
        )
    # The optimum of the first profile is what its author thinks typical.
    profile = report.plan.profiles[0] if report.plan.profiles else None
    return precision.apply_precision(
        model, request.precision, info.target, info.capabilities, profile, interface=request.cast_interface
    )


def _builder_plan(plan: BuildPlan, request: BuildRequest, engine: Runtime) -> BuildPlan:
    """Returns what the builder is told: a strongly typed one finds the precision in the graph."""
    flags = engine.info.capabilities.builder_precision_flags
    cache = _timing_cache(request, engine.info)
    return dataclasses.replace(plan, precision=plan.precision if flags else "as-is", timing_cache=cache)


def _timing_cache(request: BuildRequest, info: RuntimeInfo) -> Path | None:
    """Returns the file of the timing cache: what was measured on one GPU with one version is of no use to others."""
    if not info.capabilities.timing_cache:
        return None
    if request.timing_cache is not None:
        return request.timing_cache
    gpu = re.sub(r"[^\w.+-]+", "-", info.gpu or "unknown")
    folder = request.timing_folder
    return None if folder is None else folder / f"{info.family}-{info.version}-{gpu}.timing"


def _cache_findings(request: BuildRequest, info: RuntimeInfo) -> tuple[Finding, ...]:
    """Tells whoever named a file for a timing cache that there is none; a folder stands for "if there is one"."""
    if request.timing_cache is None or info.capabilities.timing_cache:
        return ()
    message = "TensorRT-RTX has no timing cache: it chooses kernels on the machine that runs the engine"
    fix = "Leave out --timing-cache; TensorRT has one."
    return (Finding("TC407", "timing-cache-unused", message, Severity.INFO, fix=fix),)


def _build_in_thread(network: ParsedNetwork, plan: BuildPlan, clock: _Clock) -> EngineBlob:
    """Builds in another thread, so that Ctrl-C reaches this one; the native call itself cannot be interrupted."""
    import concurrent.futures

    stopped = False

    def monitor(phase: str, step: int, steps: int) -> bool:
        clock.progress.phase(phase, step, steps)
        return not stopped

    executor = concurrent.futures.ThreadPoolExecutor(1)
    with clock.stage("build"):
        future = executor.submit(network.build, plan, monitor)
        try:
            while True:
                with contextlib.suppress(concurrent.futures.TimeoutError):
                    return future.result(timeout=0.2)
        finally:
            stopped = True
            executor.shutdown(wait=False)


def _with_narrower(
    findings: tuple[Finding, ...],
    model: OnnxModel,
    sized: Sized,
    plan: BuildPlan,
    engine: Runtime,
    clock: _Clock,
) -> tuple[Finding, ...]:
    """Says which narrower profiles build, where the builder refuses these and trying costs little.

    Everything fixed is tried first: where that fails too, the ranges are not to blame.
    """
    started = time.monotonic()
    refused = [finding for finding in findings if finding.code == "TC403"]
    if not refused or clock.seconds["build"] > _PATIENCE_SECONDS:
        return findings
    built: list[str] = []
    for number, each in enumerate(narrower(model.inputs, sized.profiles, sized.lattice)):
        if time.monotonic() - started > _PATIENCE_SECONDS:
            break
        # A builder that broke down may have left its network in any state.
        network, _ = _parse(model, engine, clock)
        try:
            if network is not None:
                _build_in_thread(network, dataclasses.replace(plan, profiles=each.profiles), clock)
                built.append(each.flags)
        except BuildFailed:
            if number == 0:
                return findings
    if not built:
        return findings
    offer = f"The ranges are too wide for the builder. It does build with {'; or with '.join([*built[1:], built[0]])}."
    return tuple(dataclasses.replace(f, fix=offer) if f is refused[0] else f for f in findings)


def _check_outputs(request: BuildRequest) -> None:
    if real_path(request.engine_path) == real_path(request.report_path):
        raise InputError(f"{request.report_path} is both the engine and the report", "Choose two paths.")
    for path in (request.engine_path, request.report_path):
        if real_path(path) == real_path(request.model):
            raise InputError(f"{path} is the model itself", "Choose another output path with -o.")
        check_writable(path)
    for path in _named_cache(request):
        if real_path(path) in map(real_path, (request.model, request.engine_path, request.report_path)):
            raise InputError(f"{path} is not for a timing cache too", "Choose another file with --timing-cache.")
        check_writable(path)


def _named_cache(request: BuildRequest) -> tuple[Path, ...]:
    return () if request.timing_cache is None else (request.timing_cache,)


def _protect_data(model: OnnxModel, *outputs: Path) -> None:
    """Raises InputError where an output would overwrite the model's external data."""
    data = {real_path(path) for path in model.external_files}
    for path in outputs:
        if real_path(path) in data:
            raise InputError(f"{path} holds weights of the model", "Choose another output path with -o.")


def _profiles(model: OnnxModel, request: BuildRequest | CheckRequest) -> tuple[ShapeProfile, ...]:
    bounds = request.profiles or ({},)
    return tuple(make_profile(model.inputs, {**request.dims, **own}, request.values) for own in bounds)


def _plan(request: BuildRequest, engine: Runtime, profiles: tuple[ShapeProfile, ...]) -> BuildPlan:
    # A family alone means the version that is installed: the plan is then the same however it was asked for.
    target = request.target if request.target and request.target.version else engine.info.target
    asked = profiles if request.rounded or request.split is not None else None
    return BuildPlan(
        target=target,
        profiles=profiles,
        precision=request.precision,
        rewrite=request.rewrite,
        requantize=request.requantize,
        rounded=request.rounded,
        split=request.split,
        asked=asked,
        options=request.options,
        cast_interface=request.cast_interface,
        cast_by=precision.tools() if precision.casts(request.precision, engine.info.capabilities) else {},
    )


def _target_and_runtime(target: Target | None) -> tuple[Target, Runtime | str]:
    """Returns the target and its runtime, or why there is none: with a version, rules alone can judge.

    Raises:
        EnvironmentMissing: No version was named, so the one that is installed is meant, and none is.
    """
    try:
        engine = runtime.load(target)
    except EnvironmentMissing as error:
        if target is None or target.version is None:
            raise
        return target, error.message
    return target if target and target.version else engine.info.target, engine


def _identity(model: OnnxModel) -> dict[str, Any]:
    return {"path": str(model.path), "sha256": model.digest()}


def _file_identity(path: Path, data: bytes | memoryview) -> dict[str, Any]:
    return {"path": str(path), "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _up_to_date(request: BuildRequest, asked: BuildReport) -> BuildReport | None:
    """Returns a report of the engine that is there, if it was built from just this model, plan and runtime."""
    new = json.loads(json.dumps(asked.to_json()))
    # Whatever a file that is no report of ours makes go wrong here means the same: build.
    try:
        # As make does: whoever touches a model wants it built.
        if request.model.stat().st_mtime_ns > request.engine_path.stat().st_mtime_ns:
            return None
        old = json.loads(request.report_path.read_bytes())
        engine = sha256_of(request.engine_path)
        # The profiles follow from the plan and the model.
        same = all(old[key] == new[key] for key in ("schema", "trtconv", "plan", "runtime", "exit_code"))
        if not same or old["model"]["sha256"] != new["model"]["sha256"] or old["engine"]["sha256"] != engine:
            return None
        kept = asked.kept(old)
        found, ignored = request.selection.divide((*kept.findings, *(each.finding for each in kept.ignored)))
        return None if _fails(found, request.fail_on) else dataclasses.replace(kept, findings=found, ignored=ignored)
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return None


def _failed(report: BuildReport, findings: Iterable[Finding]) -> BuildReport:
    return dataclasses.replace(report, findings=report.findings + tuple(findings), exit_code=1)


def _findings_of(error: BuildFailed) -> tuple[Finding, ...]:
    found = tuple(f for f in error.findings if isinstance(f, Finding))
    return found or (Finding("TC403", "builder-refused", error.message, Severity.ERROR, fix=error.hint),)


def _fails(findings: Iterable[Finding], fail_on: Severity | None) -> bool:
    found = worst(findings)
    return fail_on is not None and found is not None and found.rank >= fail_on.rank


def _worst_first(finding: Finding) -> tuple[Any, ...]:
    place = finding.location
    return -finding.severity.rank, place.graph, -1 if place.index is None else place.index, finding.code
