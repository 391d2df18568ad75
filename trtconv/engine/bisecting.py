"""Where an engine, or a rewritten model, first computes something else than its model. Runs in a process of its own.

Every tensor between is made an output, by Polygraphy, of the model and of what is compared with it; the first of them
in the order of the graph that is beyond the tolerance is what is looked for. A tensor that is an output cannot be fused
away, and that may hide the fault; then tensors are made outputs one at a time, halving what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.builder_options import BuilderOptions
from trtconv.core.dims import InputRange, ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.saved import SavedReport
from trtconv.core.documents.verify import Bisection, Difference, NodePlace, TensorDifference, Tolerance, VerifyCase
from trtconv.core.errors import EngineFailed, EnvironmentMissing
from trtconv.core.frozen import frozen
from trtconv.core.process import Tell
from trtconv.core.requests.engine import VerifyRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch, ToldProgress
from trtconv.core.target import Target
from trtconv.engine.cases import Case, make_feeds, values_at
from trtconv.engine.opening import read_engine
from trtconv.engine.rebuilding import Recipe, as_built, rewritten_as_built
from trtconv.engine.runs import CannotRun, OnnxRuns
from trtconv.graph.fitting import fit
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.extending.added import admit
from trtconv.pipeline.preparation import handed_over
from trtconv.runtimes.compare import compare
from trtconv.runtimes.inputs import Feeds, read_inputs
from trtconv.runtimes.tensorrt import ParsedNetwork, Runtime, load

_COMPUTING = ("tf32", "sparsity", "optimization_level", "workspace_bytes")

Outputs = Callable[[Sequence[str]], dict[str, NDArray[Any]]]
"""Runs something with further tensors as outputs, and returns all outputs."""


def serve(task: tuple[VerifyRequest, str, VerifyCase, Tolerance], tell: Tell) -> dict[str, object]:
    """Looks for the first tensor that diverges.

    Args:
        task: The request; what ran, as in its report; the case that failed, and the tolerance.
        tell: Told of stages.

    Returns:
        The JSON of a `Bisection`.
    """
    request, ran, failed, tolerance = task
    clock = Stopwatch(ToldProgress(tell))
    with clock.stage(Stage.LOAD):
        admit(request.extend, ())
        model = OnnxModel.load(request.model)
        report = _report(request)
        fit(model, Recipe.of(report).plan.interface)
        case = _case(request, model, report, failed)
        feeds = make_feeds(model, case, request.generator)
    with clock.stage(Stage.BISECT):
        expected = _reference(model, feeds)
        if ran == "engine":
            runs = _engine(model, report, feeds)
        else:
            runs = _rewritten(*as_built(model, Recipe.of(report), emulated=True), feeds)
        search = Search(model, expected, runs, tolerance)
        return search.result().to_json()


def _report(request: VerifyRequest) -> SavedReport | None:
    if request.engine is None and not request.engine_path.exists():
        return None
    return read_engine(request.engine_path, request.report, trust=request.trust, key=request.key).report


def _case(request: VerifyRequest, model: OnnxModel, report: SavedReport | None, failed: VerifyCase) -> Case:
    """Returns a case as it was run."""
    values: Mapping[str, Any] = {}
    if request.inputs is not None:
        values = read_inputs(model.inputs, request.inputs)
    elif report is not None and report.profiles:
        values = values_at(model, report.profiles[failed.profile], failed.size)
    return Case(failed.profile, failed.size, failed.shapes, failed.seed, values)


def _reference(model: OnnxModel, feeds: Feeds) -> dict[str, NDArray[Any]]:
    """Returns the tensors of the main graph that hold floats, in the order of the graph."""
    constant = set(model.main.initializers)
    names = []
    for node in model.proto.graph.node:
        if all(name in constant for name in node.input if name):
            constant.update(node.output)
        else:
            names += [name for name in node.output if name]
    try:
        outputs = OnnxRuns(marked(model, names)).run(0, feeds)
    except CannotRun as error:
        raise EnvironmentMissing(f"the model does not run with its tensors as outputs: {error}") from error
    return {name: outputs[name] for name in names if _is_float(outputs[name])}


def _is_float(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind == "f"


def marked(model: OnnxModel, names: Sequence[str]) -> OnnxModel:
    """Returns a copy of a model with further tensors as outputs."""
    from polygraphy.backend.onnx import ModifyOutputs

    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    outputs = list(dict.fromkeys((*model.outputs, *names)))
    # Its own entries know the types of the outputs that were there.
    names_with_types = {value.name for value in proto.graph.value_info}
    proto.graph.value_info.extend(value for value in proto.graph.output if value.name not in names_with_types)
    changed = ModifyOutputs(proto, outputs=outputs)()
    types = model.main.types
    for value in changed.graph.output:
        # TensorRT 8.6 refuses outputs that do not say their type.
        if not value.type.tensor_type.elem_type and value.name in types:
            value.type.tensor_type.elem_type = types[value.name]
    return OnnxModel(changed, model.path)


def _rewritten(model: OnnxModel, lowered: Mapping[str, str], feeds: Feeds) -> tuple[set[str], Outputs]:
    """Returns the tensors of the rewritten model, and what runs it."""

    def run(names: Sequence[str]) -> dict[str, NDArray[Any]]:
        try:
            return OnnxRuns(marked(model, names)).run(0, feeds)
        except CannotRun as error:
            raise EnvironmentMissing(f"the rewritten model does not run so: {error}") from error

    return _by_old_names(model, lowered, run)


def _engine(model: OnnxModel, report: SavedReport | None, feeds: Feeds) -> tuple[set[str], Outputs]:
    """Returns the tensors of the model as it is built, and what builds and runs it at one size."""
    family = None if report is None else Target(report.report.runtime.family)
    runtime = load(family)
    by_flags = runtime.info.capabilities.builder_precision_flags
    recipe = Recipe.of(report)
    source, lowered = (rewritten_as_built(model, recipe), {}) if by_flags else as_built(model, recipe)
    shapes = {name: InputRange(values.shape, values.shape, values.shape) for name, values in feeds.items()}
    values = {} if report is None else _fixed_values(report, feeds)
    plan = BuildPlan(
        target=runtime.info.target,
        profiles=(ShapeProfile(shapes, {}, values),),
        precision=recipe.types.precision if by_flags else "as-is",
        node_precisions=recipe.types.nodes if by_flags else {},
        options=BuilderOptions(**{name: getattr(recipe.plan.options, name) for name in _COMPUTING}),
    )
    engines: list[Any] = []

    def run(names: Sequence[str]) -> dict[str, NDArray[Any]]:
        network = _parsed(runtime, marked(source, names))
        blob = network.build(plan)
        if not engines:
            engines.append(runtime.engines())
        execution = engines[0].load(bytes(blob.data)).open()
        try:
            execution.feed(feeds)
            results: dict[str, NDArray[Any]] = execution.run()
        finally:
            execution.close()
        return results

    return _by_old_names(source, lowered, run)


def _fixed_values(report: SavedReport, feeds: Feeds) -> dict[str, InputRange]:
    names = {name for profile in report.profiles for name in profile.values}
    flat = {name: tuple(int(n) for n in feeds[name].reshape(-1)) for name in names}
    return {name: InputRange(elements, elements, elements) for name, elements in flat.items()}


def _parsed(runtime: Runtime, model: OnnxModel) -> ParsedNetwork:
    parsed = runtime.parse(handed_over(model), model.path)
    if isinstance(parsed, tuple):
        raise EngineFailed(f"TensorRT's parser refuses the model with its tensors as outputs: {parsed[0].message}")
    return parsed


def _by_old_names(model: OnnxModel, lowered: Mapping[str, str], run: Outputs) -> tuple[set[str], Outputs]:
    """Returns a model's tensors, and what runs it, by the names that they had before the cast."""
    there = {name for node in model.proto.graph.node for name in node.output if name}
    now = {**dict(zip(there, there, strict=True)), **{old: new for old, new in lowered.items() if new in there}}

    def run_by_old_names(names: Sequence[str]) -> dict[str, NDArray[Any]]:
        results = run([now[name] for name in names])
        return {**results, **{name: results[now[name]] for name in names}}

    return set(now), run_by_old_names


@frozen
class Search:
    """The search for the first tensor that diverges.

    Args:
        model: The original.
        expected: Its tensors, in the order of the graph.
        runs: Names of the tensors of what is compared with it, and what runs that.
        tolerance: How far a tensor may be off.
    """

    model: OnnxModel
    expected: Mapping[str, Any]
    runs: tuple[set[str], Outputs]
    tolerance: Tolerance

    def result(self) -> Bisection:
        """Searches."""
        there, run = self.runs
        names = [name for name in self.expected if name in there]
        together = self._differences(names, run(names))
        first = next((difference for difference in together if not difference.passed), None)
        if first is not None:
            return self._bisection(first, together, "")
        alone, looked_at = self._halve(names, run)
        if alone is not None:
            return self._bisection(
                alone, looked_at, "It is right where every tensor is an output: a fusion makes it wrong."
            )
        why = "with its tensors as outputs everything is within the tolerance: a fusion makes the difference"
        return Bisection(why=why, differences=_reported(together))

    def _differences(self, names: Sequence[str], actual: Mapping[str, Any]) -> list[Difference]:
        common = [name for name in names if name in actual]
        return [compare(name, self.expected[name], actual[name], self.tolerance) for name in common]

    def _halve(self, names: Sequence[str], run: Outputs) -> tuple[Difference | None, list[Difference]]:
        """Looks for the first tensor that diverges when it alone is made an output."""
        low, high = 0, len(names) - 1
        first, looked_at = None, []
        while low <= high:
            middle = (low + high) // 2
            (difference,) = self._differences([names[middle]], run([names[middle]]))
            looked_at.append(difference)
            if difference.passed:
                low = middle + 1
            else:
                first, high = difference, middle - 1
        return first, looked_at

    def _bisection(self, first: Difference, looked_at: Sequence[Difference], note: str) -> Bisection:
        index = self.model.main.producers[first.name]
        node = self.model.proto.graph.node[index]
        by_name = {difference.name: difference for difference in looked_at}
        evidence = [f"{first.name}: {first.why} ({_numbers(first)})"]
        for name in dict.fromkeys(node.input):
            if name in by_name:
                evidence.append(f"its input {name} is within the tolerance ({_numbers(by_name[name])})")
        evidence += [note] if note else []
        place = NodePlace(index, node.name, node.op_type)
        return Bisection(first.name, place, tuple(evidence), differences=_reported(looked_at))


def _numbers(difference: Difference) -> str:
    return f"largest relative error {difference.max_rel:.1e}, cosine {difference.cosine:.6f}"


def _reported(differences: Sequence[Difference]) -> tuple[TensorDifference, ...]:
    return tuple(
        TensorDifference(difference.name, difference.max_rel, difference.cosine, difference.passed)
        for difference in differences
    )
