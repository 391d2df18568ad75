"""Is what an engine computes what its model means? Runs in a process of its own; see `trtconv.engine.verify`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trtconv.core.bounds import make_profile
from trtconv.core.dims import Shape, ShapeProfile
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.proof import BuildProof
from trtconv.core.documents.saved import SavedReport
from trtconv.core.documents.verify import Disagreement, Tolerance, VerifyCase, VerifyReport
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.process import Tell
from trtconv.core.requests.engine import VerifyRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch, ToldProgress
from trtconv.engine.cases import Case, cases_of_profiles, make_feeds
from trtconv.engine.freed_sizes import OTHERWISE, means_otherwise
from trtconv.engine.hearing import part
from trtconv.engine.loading import open_engine
from trtconv.engine.memory import available_bytes, too_large
from trtconv.engine.opening import EngineFile, engine_of, read_engine, require_machine, require_model
from trtconv.engine.profiles import named, narrowed, profile_for
from trtconv.engine.rebuilding import Recipe, as_built, changes_numbers, subject_as_built
from trtconv.engine.runs import WAYS_TO_LOAD, CannotRun, EngineRuns, NetworkRuns, OnnxRuns, Runs
from trtconv.engine.saving import TensorFolder, folder_of
from trtconv.engine.self_check import check_profiles, self_check
from trtconv.engine.sizes import refuse_inputs, refuse_sizes
from trtconv.engine.tolerances import precision_of, tolerance_of
from trtconv.engine.traced_sizes import TracedSizes
from trtconv.graph.chance import random_outputs
from trtconv.graph.fitting import fit
from trtconv.graph.model import OnnxModel
from trtconv.graph.views import quantizes
from trtconv.pipeline.extending.added import admit
from trtconv.pipeline.outputs import model_identity
from trtconv.pipeline.parse import parse_model
from trtconv.pipeline.preparation import Preparation
from trtconv.runtimes.compare import compare
from trtconv.runtimes.inputs import Feeds, load_generator, read_inputs
from trtconv.runtimes.onnxruntime import output_steps
from trtconv.runtimes.proof.proving import NetworkProof
from trtconv.runtimes.tensorrt import Engine, EngineLoader, load, load_engines


@frozen
class Setting:
    """What is verified.

    Args:
        model: The original.
        digest: SHA-256 of it.
        against: What its results are compared with: the original, or another model that was asked for.
        subject: The engine file; None where there is none.
        engine: The engine; None where it cannot be run here.
        runtime: What runs it.
        why_not: Why it cannot.
        precision: Key of `TOLERANCES`.
        tolerance: How far outputs may be off.
    """

    model: OnnxModel
    digest: str
    against: OnnxModel
    subject: EngineFile | None
    engine: Engine | None
    runtime: EngineLoader | None
    why_not: str | None
    precision: str
    tolerance: Tolerance

    @property
    def recipe(self) -> Recipe:
        """How the engine was built, or would be without flags."""
        return Recipe.of(self.report)

    @property
    def report(self) -> SavedReport | None:
        """The report of the build; None where there is none."""
        return None if self.subject is None else self.subject.report

    @functools.cached_property
    def chance(self) -> Mapping[str, str]:
        """Outputs that hang on random numbers; see `random_outputs`."""
        return random_outputs(self.model)

    def opening(self, ran: str) -> VerifyReport:
        """Returns the report as it is before anything has run; `ran` is what does."""
        runtime = self.runtime
        return VerifyReport(
            model=FileIdentity(str(self.model.path), self.digest),
            against=None if self.against is self.model else model_identity(self.against),
            engine=None if self.subject is None else self.subject.identity(),
            ran=ran,
            why_not_run=self.why_not,
            runtime=None if runtime is None else RuntimeIdentity(runtime.family, runtime.version, runtime.gpu_name),
            precision=self.precision,
            tolerance=self.tolerance,
        )


def serve(request: VerifyRequest, tell: Tell) -> dict[str, float]:
    """Verifies, and tells of what is compared with what, of stages, and of every case.

    Returns:
        Seconds by stage.
    """
    clock = Stopwatch(ToldProgress(tell))
    with clock.stage(Stage.LOAD):
        admit(request.extend, ())
        folder = folder_of(request)
        setting = prepare(request, clock)
        cases = choose_cases(request, setting)
        try:
            original = OnnxRuns(setting.against if folder is None else folder.exposing(setting.against))
        except CannotRun as error:
            raise EnvironmentMissing(f"there is nothing to compare with: {error}", _REFERENCE_HINT) from error
        ran, runs = _candidate(setting, folder)
    reference = TracedSizes(setting.against, original)
    tell(part(setting.opening(ran)))
    refused = too_large(setting.model, cases, available_bytes())
    profiles = [] if request.inputs is not None else _built_profiles(request, setting)
    for index, case in enumerate(itertools.chain(cases, reference.cases(profiles, request.seed))):
        if index in refused:
            tell(part(VerifyReport(ran, None, (_reported(case, refused[index]),))))
        else:
            saving = None if folder is None else functools.partial(folder.write, index, case)
            compared = _compare(request, setting, reference, runs, case, clock, saving)
            tell(part(VerifyReport(ran, None, (compared,))))
    if request.self_check:
        disagreements = _self_check(request, setting, reference, runs, cases, clock)
        tell(part(VerifyReport(ran, None, self_check=disagreements)))
    if request.prove != "none":
        parsed, findings = _prove(request, setting, clock)
        tell(part(VerifyReport(ran, None, parsed=parsed, findings=findings)))
    if isinstance(runs, NetworkRuns):
        tell(part(VerifyReport(ran, None, layers=runs.layers, unproven=tuple(runs.unproven.values()))))
    return clock.seconds


def _prove(request: VerifyRequest, setting: Setting, clock: Stopwatch) -> tuple[BuildProof | None, tuple[Finding, ...]]:
    """Proves what the parser of the TensorRT that is here makes of the model as it was built.

    Raises:
        EnvironmentMissing: No such TensorRT is here.
    """
    engine = load(setting.recipe.plan.target)
    subject = subject_as_built(setting.model, setting.recipe, engine.info.capabilities)
    network, parser_findings = parse_model(subject.parsed, engine, clock)
    if network is None:
        return None, parser_findings
    profiles = [profile for profile in _built_profiles(request, setting) if profile.inputs]
    with NetworkProof(network, subject, profiles, request.prove, request.prove_time) as proof:
        parsed, proof_findings = proof.finish(clock)
    return parsed, (*parser_findings, *proof_findings)


def _self_check(
    request: VerifyRequest, setting: Setting, reference: Runs, runs: Runs, cases: Sequence[Case], clock: Stopwatch
) -> tuple[Disagreement, ...]:
    """Returns where the engine does not agree with itself."""
    disagreements: list[Disagreement] = []

    def run(profile: int, feeds: Feeds) -> Feeds:
        return {name: values for name, values in runs.run(profile, feeds).items() if name not in setting.chance}

    with clock.stage(Stage.SELF_CHECK):
        for case in cases:
            feeds = make_feeds(setting.model, case, request.generator)
            disagreements += self_check(run, case.profile, feeds, setting.tolerance, reference.run)

        def make(shapes: Mapping[str, Shape]) -> Feeds:
            return make_feeds(setting.model, Case(0, "opt", shapes, request.seed), request.generator)

        disagreements += check_profiles(run, _built_profiles(request, setting), make, setting.tolerance)
    return tuple(disagreements)


_ON_THE_MACHINE = "Verify on a machine with a GPU that the engine was built for."
_REFERENCE_HINT = f"{WAYS_TO_LOAD} trtconv export compares with PyTorch instead."


def prepare(request: VerifyRequest, clock: Stopwatch) -> Setting:
    """Reads model, engine and report, and loads the engine where it can run here.

    Raises:
        InputError: They do not belong together, or cannot be read.
        EnvironmentMissing: The engine was built for another machine, or has to run and cannot.
        EngineFailed: TensorRT does not take the engine.
    """
    model = OnnxModel.load(request.model)
    digest = model.digest()
    if request.generator is not None:
        load_generator(request.generator)
    subject, why_not = None, None
    # What goes with an engine that is not named goes with the usual one.
    path = engine_of(request.model, digest) if request.engine is request.report is None else request.engine_path
    # Only an engine that nobody named may be missing.
    if request.engine is not None or request.key is not None or path.exists():
        subject = read_engine(path, request.report, trust=request.trust, key=request.key)
        require_model(subject, request.model, digest)
        fit(model, Recipe.of(subject.report).plan.interface)
    else:
        why_not = f"there is no engine {path}"
    engine, runtime = None, None
    if subject is not None:
        try:
            runtime = load_engines(subject.family)
        except EnvironmentMissing as error:
            why_not = error.message
    if subject is not None and runtime is not None:
        require_machine(subject, runtime, with_weights=False)
        try:
            engine = open_engine(subject, runtime, request.model, clock)
        except EnvironmentMissing as error:
            runtime, why_not = None, error.message
    if engine is None and (request.require_engine or request.self_check):
        raise EnvironmentMissing(
            f"the engine cannot be run: {why_not}", "Leave out --require-engine and --self-check, or mend that."
        )
    against = model if request.against is None else _other(model, request.against)
    precision = precision_of(model, subject, on_gpu=engine is not None)
    if quantizes(model):
        recipe = Recipe.of(None if subject is None else subject.report)
        precision = "requantized" if changes_numbers(model, recipe) else precision
        precision = precision if quantizes(against) else "quantized"
    return Setting(
        model, digest, against, subject, engine, runtime, why_not, precision, tolerance_of(request, precision)
    )


def _other(model: OnnxModel, path: Path) -> OnnxModel:
    """Reads the model to compare with.

    Raises:
        InputError: It has other inputs or outputs.
    """
    other = OnnxModel.load(path)
    fit(other, model.interface)
    ours, theirs = ({spec.name: spec.dtype for spec in subject.inputs} for subject in (model, other))
    if ours != theirs or set(model.outputs) - set(other.outputs):
        raise InputError(
            f"{path} has not the inputs and outputs of {model.path}", "Compare with the model that it was made of."
        )
    return other


def _candidate(setting: Setting, folder: TensorFolder | None) -> tuple[str, Runs]:
    """Returns what runs, in words, and what runs it: the engine, what TensorRT parsed, or the rewritten model."""
    if setting.engine is not None:
        return "engine", EngineRuns(setting.engine, folder.keeps if folder and folder.patterns else None)
    model, _ = as_built(setting.model, setting.recipe)
    try:
        return "network", NetworkRuns(model, setting.recipe.plan.target, *(() if folder is None else (folder.keeps,)))
    except CannotRun as error:
        preparation = Preparation(setting.model.copy(), setting.recipe.plan.target)
        preparation.name()
        if setting.against is setting.model and model.proto.graph == preparation.model.proto.graph:
            why = f"{setting.why_not}; {error}; and nothing was rewritten"
            raise EnvironmentMissing(f"there is nothing to compare: {why}", _ON_THE_MACHINE) from error
    try:
        return "rewritten model", OnnxRuns(as_built(setting.model, setting.recipe, emulated=True)[0])
    except CannotRun as error:
        raise EnvironmentMissing(
            f"neither the engine ({setting.why_not}) nor the rewritten model can be run here: {error}", _ON_THE_MACHINE
        ) from error


def choose_cases(request: VerifyRequest, setting: Setting) -> list[Case]:
    """Returns the sizes and inputs to run.

    Raises:
        InputError: The user's inputs or bounds do not fit the model, or the engine's profiles.
    """
    model = setting.model
    if request.seed < 0:
        raise InputError(f"the seed {request.seed} is negative", "Give 0 or more.")
    foreign = [spec.name for spec in model.inputs if spec.dtype == "undefined"]
    if foreign:
        raise InputError(
            f"input {foreign[0]!r} of {request.model} is not a tensor", "Verify a model that takes tensors."
        )
    profiles = _built_profiles(request, setting)
    if request.inputs is not None:
        feeds = read_inputs(model.inputs, request.inputs)
        shapes = {name: values.shape for name, values in feeds.items()}
        index = profile_for(profiles, shapes)
        refuse_inputs(model, request.inputs, feeds, profiles[index])
        return [Case(index, "inputs", shapes, request.seed, feeds)]
    within = narrowed(model.inputs, profiles, request.dims)
    if request.dims:
        refuse_sizes(model, [profile for _, profile in within])
    cases = cases_of_profiles(model, [profile for _, profile in within], random=request.random, seed=request.seed)
    return [dataclasses.replace(case, profile=within[case.profile][0]) for case in cases]


def _built_profiles(request: VerifyRequest, setting: Setting) -> Sequence[ShapeProfile]:
    """Returns the engine's profiles: from its report, from itself, or from what the user says."""
    report = setting.report
    if report is not None and report.profiles:
        names = {spec.name for spec in setting.model.inputs}
        if any(profile.inputs.keys() != names for profile in report.profiles):
            raise InputError(
                f"{report.path} has profiles for other inputs than those of {request.model}", _OTHER_INPUTS
            )
        return report.profiles
    if setting.engine is not None and setting.engine.profiles:
        return [named(setting.model.inputs, shapes) for shapes in setting.engine.profiles]
    try:
        return [make_profile(setting.model.inputs, request.dims)]
    except InputError as error:
        if request.dims or setting.why_not is None:
            raise
        hint = f"Name an engine that has its report, or say at which sizes to compare the rewritten model. {error.hint}"
        raise InputError(f"{setting.why_not}, and the model has {error.message}", hint) from error


_OTHER_INPUTS = "Build the engine again: its report was altered."


def _reported(case: Case, skipped: str | None = None) -> VerifyCase:
    """Returns what a report says of a case before it is run."""
    return VerifyCase(case.profile, case.size, case.shapes, case.seed, skipped=skipped)


def _compare(
    request: VerifyRequest,
    setting: Setting,
    reference: Runs,
    runs: Runs,
    case: Case,
    clock: Stopwatch,
    saving: Callable[[Feeds, Feeds, Feeds], Path] | None,
) -> VerifyCase:
    """Runs a case on both; `saving` writes what was computed."""
    with clock.stage(Stage.INPUTS):
        feeds = make_feeds(setting.model, case, request.generator)
    try:
        with clock.stage(Stage.REFERENCE):
            expected = reference.run(case.profile, feeds)
    except CannotRun as error:
        return _reported(case, str(error))
    try:
        with clock.stage(Stage.ENGINE if setting.engine is not None else Stage.REWRITTEN):
            actual = runs.run(case.profile, feeds)
    except (CannotRun, EngineFailed) as error:
        return dataclasses.replace(_reported(case, str(error)), passed=False)
    except EnvironmentMissing as error:
        return _reported(case, error.message)
    with clock.stage(Stage.COMPARE):
        steps = output_steps(setting.against)
        lacking = runs.lacking if isinstance(runs, NetworkRuns) else ""
        outputs = tuple(
            compare(name, expected[name], actual.get(name), setting.tolerance, steps.get(name, 0.0))
            for name in setting.model.outputs
            if name not in setting.chance and (name in actual or not lacking)
        )
        saved = None if saving is None else str(saving(feeds, expected, actual))
    passed = all(output.passed for output in outputs)
    if not passed and means_otherwise(setting.model, setting.recipe.plan, feeds, actual, expected):
        return _reported(case, OTHERWISE)
    if setting.chance and not lacking:
        name, op = next(iter(setting.chance.items()))
        skipped = _reported(case, f"output {name!r} has other numbers with each run: it hangs on a {op}")
        return dataclasses.replace(skipped, outputs=outputs, passed=passed if outputs else None, saved=saved)
    if lacking and passed:
        return dataclasses.replace(_reported(case, lacking), outputs=outputs, saved=saved)
    return dataclasses.replace(_reported(case), outputs=outputs, passed=passed, saved=saved)
