"""Does a model in parts compute what the model means? Runs in a process of its own; see `trtconv.engine.verify`.

Three things are held to each other at every size: the parts on ONNX Runtime, one after the other, to the model, which
shows that the cut is right; each engine to its part, given what the model has there; and the whole to the model. A
rounding of an engine may make what follows select otherwise, a box more or less: then the first two decide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from trtconv.core.bounds import make_profile
from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.pipeline import SavedPipeline, is_pipeline, load_document
from trtconv.core.documents.pipeline_verify import PipelineCase, PipelineVerifyReport
from trtconv.core.documents.verify import Difference, Tolerance, VerifyCase
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.core.process import Tell
from trtconv.core.reading import sha256_of
from trtconv.core.requests.engine import VerifyRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch, ToldProgress
from trtconv.engine.cases import Case, cases_of_profiles, make_feeds
from trtconv.engine.freed_sizes import OTHERWISE, means_otherwise
from trtconv.engine.pipelines import Pipeline, Tensors, load_pipeline, opened
from trtconv.engine.profiles import narrowed, profile_for
from trtconv.engine.runs import WAYS_TO_LOAD, CannotRun, OnnxRuns
from trtconv.engine.tolerances import precision_of, tolerance_of
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.outputs import model_identity
from trtconv.runtimes.compare import TOLERANCES, compare
from trtconv.runtimes.inputs import Feeds, read_inputs

_SIZES = 10
"""How many sizes are compared at least, where the model takes as many."""


def serve(request: VerifyRequest, tell: Tell) -> dict[str, Any]:
    """Verifies a pipeline; returns the JSON of a `PipelineVerifyReport`."""
    clock = Stopwatch(ToldProgress(tell))
    _refuse_others(request)
    path = next(
        candidate for candidate in (request.model, request.engine) if candidate is not None and is_pipeline(candidate)
    )
    with clock.stage(Stage.LOAD):
        saved = load_document(path)
        model = _model(saved, request)
        cases = cases_of(saved, model, request)
        try:
            reference = OnnxRuns(model)
        except CannotRun as error:
            raise EnvironmentMissing(f"there is nothing to compare with: {error}", WAYS_TO_LOAD) from error
    with opened(path, trust=request.trust, key=request.key) as (pipeline, why):
        if why is not None and request.require_engine:
            raise EnvironmentMissing(f"the engines cannot be run: {why}", "Leave out --require-engine, or mend that.")
        parts = load_pipeline(path, engines="onnxruntime")
        judge = PipelineJudge(request, model, pipeline, parts, reference)
        compared = []
        for case in cases:
            with clock.stage(Stage.COMPARE):
                compared.append(judge.case(case, make_feeds(model, case, request.generator)))
        return PipelineVerifyReport(
            model_identity(model),
            FileIdentity(str(path), sha256_of(path)),
            "parts" if why is not None else "engines",
            tuple(compared),
            why,
            pipeline.runtime,
            judge.tolerance,
            seconds=clock.seconds,
        ).to_json()


def _refuse_others(request: VerifyRequest) -> None:
    for flag, is_set in (
        ("--against", request.against is not None),
        ("--bisect", request.bisect),
        ("--self-check", request.self_check),
        ("--save-tensors", request.save_tensors is not None or bool(request.tensors)),
        ("--report", request.report is not None),
    ):
        if is_set:
            raise InputError(f"{flag} is about one engine", "Leave it out, or verify a part: NAME.1.part.onnx.")


def _model(saved: SavedPipeline, request: VerifyRequest) -> OnnxModel:
    """Returns the model that a pipeline was built from.

    Raises:
        InputError: It cannot be read, or is another one.
    """
    model = OnnxModel.load(saved.model() if is_pipeline(request.model) else request.model)
    if model.digest() != saved.document.model.sha256:
        raise InputError(f"{saved.path} was built from another version of {model.path}", "Build it again.")
    return model


def _profiles(saved: SavedPipeline, model: OnnxModel) -> list[ShapeProfile]:
    plan = saved.document.plan
    values = {} if plan is None or not plan.asked else plan.asked[0].values
    return [make_profile(model.inputs, dims, values) for dims in saved.document.profiles or ({},)]


def cases_of(saved: SavedPipeline, model: OnnxModel, request: VerifyRequest) -> list[Case]:
    """Returns the sizes to run: those that the user gives, or min, opt, max and random ones."""
    profiles = _profiles(saved, model)
    if request.inputs is not None:
        feeds = read_inputs(model.inputs, request.inputs)
        shapes = {name: values.shape for name, values in feeds.items()}
        return [Case(profile_for(profiles, shapes), "inputs", shapes, request.seed, feeds)]
    within = [profile for _, profile in narrowed(model.inputs, profiles, request.dims)]
    random = max(request.random, _SIZES - 3)
    return cases_of_profiles(model, within, random=random, seed=request.seed)


class PipelineJudge:
    """Compares.

    Args:
        request: What was asked.
        model: The model.
        pipeline: What is judged; its parts where its engines cannot be run.
        parts: All parts on ONNX Runtime.
        reference: Runs the model.
    """

    def __init__(
        self, request: VerifyRequest, model: OnnxModel, pipeline: Pipeline, parts: Pipeline, reference: OnnxRuns
    ) -> None:
        self._model = model
        self._pipeline = pipeline
        self._parts = parts
        self._reference = reference
        subjects = [part.subject for part in pipeline.parts if part.subject is not None]
        precisions = [precision_of(model, subject, on_gpu=True) for subject in subjects]
        precision = max(precisions, key=lambda name: TOLERANCES[name].relative, default="float32")
        self.tolerance: Tolerance = tolerance_of(request, precision)
        self._exact = tolerance_of(request, precision_of(model, None, on_gpu=False))

    def case(self, case: Case, feeds: Feeds) -> PipelineCase:
        """Runs one size."""
        result = VerifyCase(case.profile, case.size, case.shapes, case.seed)
        try:
            expected = self._reference.run(case.profile, feeds)
        except CannotRun as error:
            return PipelineCase(dataclasses.replace(result, skipped=str(error)))
        try:
            tensors, _ = self._parts.run_all(feeds)
            cut = _differences(expected, tensors, self._model.outputs, self._exact)
            plan, results = self._pipeline.saved.document.plan, {name: tensors[name] for name in self._model.outputs}
            if plan is not None and means_otherwise(self._model, plan, feeds, results, expected):
                return PipelineCase(dataclasses.replace(result, skipped=OTHERWISE))
            engines = tuple(difference for part in self._engines(tensors) for difference in part)
            whole = cut
            if self._pipeline.runtime is not None:
                whole = _differences(expected, self._pipeline.run(feeds), self._model.outputs, self.tolerance)
        except (EngineFailed, InputError) as error:
            return PipelineCase(dataclasses.replace(result, skipped=error.message, passed=False))
        agrees = all(difference.passed for difference in (*cut, *engines))
        # Where ONNX Runtime computes the results, it may select otherwise after a rounding.
        computed = self._by_engines()
        passed = agrees and all(difference.passed for difference in whole if difference.name in computed)
        return PipelineCase(dataclasses.replace(result, outputs=whole, passed=passed), cut, engines)

    def _engines(self, tensors: Tensors) -> Iterable[tuple[Difference, ...]]:
        """Yields what each engine makes of the tensors that the model has there, beside those that follow."""
        for part in self._pipeline.parts:
            if part.subject is not None:
                outputs, _ = part.run(tensors)
                yield _differences(tensors, outputs, [tensor.name for tensor in part.record.outputs], self.tolerance)

    def _by_engines(self) -> set[str]:
        """Returns the tensors that no part on ONNX Runtime has anything to do with."""
        names = {tensor.name for tensor in self._pipeline.saved.document.inputs}
        for part in self._pipeline.parts:
            if part.subject is not None and all(tensor.name in names for tensor in part.record.inputs):
                names.update(tensor.name for tensor in part.record.outputs)
        return names


def _differences(
    expected: Mapping[str, Any], results: Mapping[str, Any], names: Iterable[str], tolerance: Tolerance
) -> tuple[Difference, ...]:
    return tuple(compare(name, expected[name], results.get(name), tolerance, 0.0) for name in names)
