"""The way of a model through the house: load, rules, rewrite, parse, audit, build, prove, write."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtconv.core import codes
from trtconv.core.documents.build import BuildPlan, BuildReport
from trtconv.core.errors import BuildFailed, EnvironmentMissing, InputError
from trtconv.core.files import source_checksum
from trtconv.core.findings import Finding, Severity
from trtconv.core.gpus import gpu_labels
from trtconv.core.options import shared
from trtconv.core.progress import Progress
from trtconv.core.requests.build import BuildRequest, BuildSettings
from trtconv.core.requests.idle import refuse_conflicts
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.provenance import Origin
from trtconv.passes import Chooser, chosen
from trtconv.pipeline.outputs import (
    asked_profiles,
    check_outputs,
    file_identity,
    model_identity,
    named_cache,
    protect_data,
    up_to_date,
    write_engine,
)
from trtconv.pipeline.parse import build_in_thread, fails, findings_of, parse_model
from trtconv.pipeline.prepare import chosen_passes, prepare
from trtconv.pipeline.profiles import Sized, affordable, settle, told_level
from trtconv.pipeline.proving import NetworkProof, ProofSubject
from trtconv.precision import casts
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt import EngineBlob, ParsedNetwork, Runtime, RuntimeInfo
from trtconv.shapes.profiles import narrower

if TYPE_CHECKING:
    from trtconv.precision.measure import Feeds

_PATIENCE_SECONDS = 60.0
"""How long narrower profiles are tried after the builder refused, and how long a refusal may have taken to do so."""


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
    clock = Stopwatch(progress)
    refuse_conflicts(request)
    with clock.stage(Stage.LOAD):
        check_outputs(request)
        model = OnnxModel.load(request.model, hashed=True)
        protect_data(model, request.engine_path, request.report_path, *named_cache(request))
    with clock.stage(Stage.RUNTIME):
        engine = tensorrt.load(request.target)
        _require_gpu(request.target)
    # Samples take as long as they take.
    with clock.stage(Stage.PLAN if request.data is None else Stage.MEASURE):
        asked = planned(request, model, engine.info)
        told = {"model": asked.model, "runtime": asked.runtime, "inputs": asked.inputs}
        types = request.precision, request.node_precisions
        work = _Work(request, model, engine, asked.plan, clock, told, types)
        kept = None if request.force else up_to_date(request, asked)
    if kept is not None:
        return kept
    blob = work.run()
    report = work.report(exit_code=0 if blob is not None else 1)
    if blob is not None or request.report is not None:
        report = write_engine(request, report, blob, clock)
    return report


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
        InputError: A dimension has no bounds, or wrong ones.
    """
    profiles = asked_profiles(model, request)
    # A family alone means the version that is installed: the plan is then the same however it was asked for.
    target = Target(info.family, request.target.version) if request.target and request.target.version else info.target
    asked = profiles if request.rounded or request.split is not None else None
    if not casts(request.precision, info.capabilities, request.node_precisions):
        cast_by = {}
    elif cast_by is None:
        from trtconv.precision import apply

        cast_by = apply.tools()
    plan = BuildPlan(target, profiles, asked, cast_by, **shared(request, BuildSettings))
    if request.precision == "auto" and request.data is not None:
        from trtconv.pipeline.mixing import samples_of

        sampled = samples_of(request, model, profiles, settled=False).digest()
        plan = dataclasses.replace(plan, sampled=sampled)
    return BuildReport(model_identity(model), plan, info.to_json(), inputs=model.inputs)


def _require_gpu(target: Target | None) -> None:
    """Raises EnvironmentMissing where the GPU here is not the one that is asked for."""
    if target is None or target.gpu is None:
        return
    card = tensorrt.card()
    if card is None or target.gpu not in gpu_labels(card.name, card.capability):
        raise EnvironmentMissing(
            f"{target} was asked for, but the GPU here is {card.name if card else 'none that CUDA offers'}",
            "Build it where that GPU is: --on ADDRESS, or trtconv plan --write (docs/farm.md).",
        )


@dataclasses.dataclass
class _Work:
    """A build on its way.

    Args:
        request: What was asked.
        model: The model, which the stages change.
        engine: The TensorRT that builds.
        plan: What is built; its profiles are settled on the way.
        clock: Times the stages.
        told: What the report will say, by its fields.
        types: What is computed in which type: that of the request, or the mix that was found.
        sample: The first of those that the mix was found on.
        findings: What was found so far.
    """

    request: BuildRequest
    model: OnnxModel
    engine: Runtime
    plan: BuildPlan
    clock: Stopwatch
    told: dict[str, Any]
    types: tuple[str, Mapping[str, str]]
    sample: Feeds | None = None
    findings: list[Finding] = dataclasses.field(default_factory=list)

    def run(self) -> EngineBlob | None:
        """Goes through the stages. Returns the engine; None where the model failed, and the findings say why."""
        origin = self._rewrite()
        sized = self._settle_sizes()
        if self._fails():
            return None
        is_cast = casts(self.request.precision, self.engine.info.capabilities, self.request.node_precisions)
        # What a cast rounds is proven against the model as it was before.
        uncast = self.model.copy() if is_cast and self.request.prove != "none" else self.model
        edits = self.told["edits"]
        self._cast()
        if self._fails():
            return None
        network, told = parse_model(self.model, self.engine, self.clock)
        self.findings += origin.place(told, self.model)
        if network is None or self._fails():
            return None
        subject = ProofSubject(edits, uncast, self.model, self.types[0] if is_cast else "as-is", self.sample)
        with NetworkProof(network, subject, self.plan.profiles, self.request.prove) as proof:
            blob = self._build(network, sized)
            if blob is None:
                return None
            self.told["proof"], differs = proof.finish(self.clock)
        if not differs:
            return blob
        self.findings += origin.place(differs, uncast)
        # What differs is not written.
        self.told |= {"engine": None, "io": ()}
        return None

    def report(self, exit_code: int = 0) -> BuildReport:
        """Returns the report of what was done so far."""
        found, ignored = self.request.selection.divide(self.findings)
        return BuildReport(
            plan=self.plan,
            findings=found,
            ignored=ignored,
            seconds=self.clock.seconds,
            exit_code=exit_code,
            **self.told,
        )

    def _rewrite(self) -> Origin:
        passes = chosen_passes(self.request, self._tuned() if self.request.tune else None)
        done, findings, origin = prepare(self.model, self.engine.info.target, passes, self.clock)
        self.findings += findings
        self.told |= {"edits": done.edits, "skipped": done.skipped}
        return origin

    def _tuned(self) -> Chooser:
        """Measures which forms are the fastest; returns what chooses them."""
        # Loaded only here: most builds measure nothing.
        from trtconv.pipeline.tuning import tune

        # What `--precision auto` will find is most often float16 where it pays.
        likely = self.plan if self.plan.precision != "auto" else dataclasses.replace(self.plan, precision="fp16")
        plan = _builder_plan(likely, self.request, self.engine)
        with self.clock.stage(Stage.TUNE):
            tuned = tune(self.model, self.request, plan, self.engine, _measured(self.request))
        self.told["tuned"] = tuned
        return chosen({each.node: each.form for each in tuned})

    def _settle_sizes(self) -> Sized:
        request = self.request
        with self.clock.stage(Stage.SIZES):
            asked = request.dims if request.profiles else None
            sized = settle(self.model, self.plan.profiles, rounded=request.rounded, split=request.split, asked=asked)
        self.plan = dataclasses.replace(self.plan, profiles=sized.profiles)
        self.findings = [*sized.milder(self.findings), *sized.findings]
        self.told |= {
            "lattice": sized.lattice.to_json() if sized.lattice.dims else None,
            "notes": (
                *map(str, self.told.get("tuned", ())),
                *sized.notes,
                *told_level(self.plan, self.engine.info.capabilities),
            ),
        }
        return sized

    def _fails(self) -> bool:
        return fails(self.request.selection.divide(self.findings)[0], self.request.fail_on)

    def _cast(self) -> None:
        info, request = self.engine.info, self.request
        if request.cast_interface and not casts(request.precision, info.capabilities, {}):
            raise InputError(
                "inputs and outputs are cast only with --precision fp16, bf16 or int8, and not on TensorRT 8",
                "Leave out --cast-io.",
            )
        # The optimum of the first profile is what its author thinks typical.
        profile = self.plan.profiles[0] if self.plan.profiles else None
        if request.precision == "auto":
            # It takes as long as the samples ask for.
            with self.clock.stage(Stage.MEASURE):
                self._find_mix()
        with self.clock.stage(Stage.CAST):
            precision, nodes = self.types
            if precision == "as-is" and not nodes:
                return
            # Loaded only here: most builds cast nothing.
            from trtconv.precision.apply import apply_precision

            done = apply_precision(
                self.model,
                precision,
                info.target,
                info.capabilities,
                profile,
                nodes=nodes,
                sample=self.sample,
                interface=request.cast_interface,
            )
        self.findings += done.findings
        self.told |= {"edits": self.told["edits"] + done.edits, "cast": done.report}

    def _find_mix(self) -> None:
        from trtconv.pipeline.mixing import mixed, samples_of

        samples = samples_of(self.request, self.model, self.plan.profiles, settled=True)
        plan = _builder_plan(self.plan, self.request, self.engine)
        mix = mixed(self.request, self.model, samples, self.engine, plan, self.clock)
        if self.request.cast_interface and mix.precision == "as-is":
            raise InputError(
                f"--precision auto found no types within a tolerance of {mix.tolerance:g}, so that --cast-io has none",
                "Leave out --cast-io, or allow a larger --tolerance.",
            )
        self.types = mix.precision, mix.node_precisions
        self.told["mix"] = mix.to_json()
        self.sample = samples[0]

    def _build(self, network: ParsedNetwork, sized: Sized) -> EngineBlob | None:
        typed = dataclasses.replace(self.plan, precision=self.types[0], node_precisions=self.types[1])
        plan = _builder_plan(typed, self.request, self.engine)
        try:
            # The report names the code, and to read all of it takes a while.
            blob = build_in_thread(network, plan, self.clock, meanwhile=source_checksum)
        except BuildFailed as error:
            self.findings += _with_narrower(findings_of(error), self.model, sized, plan, self.engine, self.clock)
            return None
        self.findings += (*blob.findings, *_cache_findings(self.request, self.engine.info))
        self.told["engine"] = file_identity(self.request.engine_path, blob.data)
        self.told["io"] = (*network.inputs, *network.outputs)
        return blob


def _builder_plan(plan: BuildPlan, request: BuildRequest, engine: Runtime) -> BuildPlan:
    """Returns what the builder is told: a strongly typed one finds the precision in the graph."""
    flags = engine.info.capabilities.builder_precision_flags
    cache = _timing_cache(request, engine.info)
    typed = plan if flags else dataclasses.replace(plan, precision="as-is", node_precisions={})
    return dataclasses.replace(affordable(typed, engine.info.capabilities), timing_cache=cache)


def _timing_cache(request: BuildRequest, info: RuntimeInfo) -> Path | None:
    """Returns the file of the timing cache: what was measured on one GPU with one version is of no use to others."""
    if not info.capabilities.timing_cache:
        return None
    if request.timing_cache is not None:
        return request.timing_cache
    gpu = re.sub(r"[^\w.+-]+", "-", info.gpu or "unknown")
    folder = request.timing_folder
    return None if folder is None else folder / f"{info.family}-{info.version}-{gpu}.timing"


def _measured(request: BuildRequest) -> Path | None:
    """Returns the file of what `--tune` measured: beside the timing cache, or where those of all GPUs are."""
    if request.timing_cache is not None:
        return Path(f"{request.timing_cache}.tuned.json")
    return None if request.timing_folder is None else request.timing_folder / "tuned.json"


def _cache_findings(request: BuildRequest, info: RuntimeInfo) -> tuple[Finding, ...]:
    """Tells whoever named a file for a timing cache that there is none; a folder stands for "if there is one"."""
    if request.timing_cache is None or info.capabilities.timing_cache:
        return ()
    message = "TensorRT-RTX has no timing cache: it chooses kernels on the machine that runs the engine"
    fix = "Leave out --timing-cache; TensorRT has one."
    return (codes.TIMING_CACHE_UNUSED.finding(message, Severity.INFO, fix=fix),)


def _with_narrower(
    findings: tuple[Finding, ...],
    model: OnnxModel,
    sized: Sized,
    plan: BuildPlan,
    engine: Runtime,
    clock: Stopwatch,
) -> tuple[Finding, ...]:
    """Says which narrower profiles build, where the builder refuses these and trying costs little.

    Everything fixed is tried first: where that fails too, the ranges are not to blame.
    """
    started = time.monotonic()
    refused = [finding for finding in findings if finding.code == codes.BUILDER_REFUSED.code]
    if not refused or clock.spent(Stage.BUILD) > _PATIENCE_SECONDS:
        return findings
    built: list[str] = []
    for number, each in enumerate(narrower(model.inputs, sized.profiles, sized.lattice)):
        if time.monotonic() - started > _PATIENCE_SECONDS:
            break
        # A builder that broke down may have left its network in any state.
        network, _ = parse_model(model, engine, clock)
        try:
            if network is not None:
                build_in_thread(network, dataclasses.replace(plan, profiles=each.profiles), clock)
                built.append(each.flags)
        except BuildFailed:
            if number == 0:
                return findings
    if not built:
        return findings
    offer = f"The ranges are too wide for the builder. It does build with {'; or with '.join([*built[1:], built[0]])}."
    return tuple(dataclasses.replace(f, fix=offer) if f is refused[0] else f for f in findings)
