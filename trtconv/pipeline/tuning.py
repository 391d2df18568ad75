"""Which form of each transposed convolution is the fastest here: measured on the GPU, and remembered (`--tune`)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from trtconv.core.bounds import make_profile
from trtconv.core.decode import Fault, decoded, json_of
from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.tuned import TimedForms, TimedLayer, Tuned
from trtconv.core.encode import plain
from trtconv.core.errors import BuildFailed, EngineFailed, EnvironmentMissing, InputError
from trtconv.core.files import atomic_write, locked
from trtconv.core.frozen import frozen
from trtconv.core.node_patterns import nearest
from trtconv.core.reading import CACHE_BYTES, read_plain
from trtconv.core.target import Target
from trtconv.graph.extract import shapes_at
from trtconv.graph.layer_alone import LayerAlone, layer_of
from trtconv.graph.model import OnnxModel
from trtconv.graph.views import Deconv
from trtconv.passes import run_passes
from trtconv.passes.deconv_forms import Site, worth_timing
from trtconv.passes.explicit_deconv import MakeDeconvExplicit
from trtconv.pipeline.preparation import Preparation, passes_of
from trtconv.pipeline.racing import race
from trtconv.runtimes.compare import relative_error
from trtconv.runtimes.tensorrt import EngineLoader, Execution, Runtime

_WRONG = 0.05
"""How far two forms may be apart, of the largest magnitude, in float16 or int8."""

Times = Mapping[str, "float | None"]
"""Form to the microseconds of one inference; None where TensorRT does not build it, or computes something else."""


@frozen
class Answer:
    """What was measured of a layer.

    Args:
        times: The time of each form.
        refused: Forms whose None is no accident: the parser refuses them, or they compute something else.
        spread: How far apart two builds of one form are, the slower over the faster; 1 where none was built twice.
    """

    times: Times
    refused: frozenset[str]
    spread: float = 1.0


def tune(
    model: OnnxModel, plan: BuildPlan, builder_plan: BuildPlan, engine: Runtime, cache: Path | None
) -> tuple[Tuned, ...]:
    """Finds the fastest form of every deconvolution that has several, at the opt of the first profile, rounded.

    Args:
        model: The model as it was loaded; it is not changed.
        plan: What is built.
        builder_plan: What the builder is told of it.
        engine: The TensorRT that builds.
        cache: What was measured before; None keeps nothing.

    Returns:
        What was chosen and why, node by node.

    Raises:
        EnvironmentMissing: There is something to be measured, and no GPU.
    """
    # Where the builder is not told of a precision, the graph will be cast to it.
    is_cast = plan.precision != builder_plan.precision
    layers = _layers(model, plan, _rounded(model, plan, engine.info.target), engine.info.target, is_cast)
    # What is measured of a layer alone says nothing of it in its place, where the network's own build measures it.
    trial = dataclasses.replace(builder_plan, node_precisions={}, timing_cache=None, trial=True)
    race = _Race(engine, trial, _Memory(cache))
    return tuple(_tuned(node, layer, forms[0], *race.times(layer, forms)) for node, (layer, forms) in layers.items())


def _tuned(node: str, layer: LayerAlone, usual: str, answer: Answer, is_known: bool) -> Tuned:
    form = best(answer.times, usual, answer.spread)
    return Tuned(node, layer.title, form, usual, dict(answer.times), is_known, answer.spread)


def best(times: Times, usual: str, spread: float) -> str:
    """Returns the fastest form; the usual one unless another gains more than two builds of one form are apart."""
    timed = {form: us for form, us in times.items() if us is not None}
    if not timed:
        return usual
    fastest = min(timed, key=timed.__getitem__)
    return fastest if usual not in timed or timed[fastest] * max(1.0, spread) < timed[usual] else usual


def _rounded(model: OnnxModel, plan: BuildPlan, target: Target) -> ShapeProfile:
    """Returns the first profile as `--round` will move it, which goes by the model after the passes."""
    if not plan.rounded:
        return plan.profiles[0]
    preparation = Preparation(model.copy(), target)
    preparation.rewrite(passes_of(plan))
    return preparation.size(plan.profiles, rounded=True).profiles[0]


def _layers(
    model: OnnxModel, plan: BuildPlan, profile: ShapeProfile, target: Target, is_cast: bool
) -> dict[str, tuple[LayerAlone, tuple[str, ...]]]:
    """Returns the layers that have a choice, by the names of their nodes, and their forms, the usual one first."""
    copy, layers = model.copy(), dict[str, tuple[LayerAlone, tuple[str, ...]]]()
    shapes: dict[str, tuple[int | None, ...]] = {}

    def record(view: Deconv, site: Site, usual: str) -> str:
        if not shapes:
            shapes.update(shapes_at(copy, profile, "opt"))
        shape = shapes.get(view.inputs[0]) or (None,)
        sizes = [size for size in shape if size is not None]
        assert not isinstance(site.kernel, str)
        # What has a precision of its own is not timed in it.
        if len(sizes) == len(shape) and nearest(plan.node_precisions, view.node.name, view.node.op_type) is None:
            weight = site.kernel.values.shape
            layer = layer_of(view, weight, sizes, _element(view, site, is_cast), copy.opset)
            layers[view.node.name] = (layer, (usual, *(form for form in worth_timing(site) if form != usual)))
        return usual

    Preparation(copy, target).rewrite(passes_of(plan, choose=record))
    return layers


def _element(view: Deconv, site: Site, is_cast: bool) -> str:
    """Returns the type of a layer's tensors. Where that is bfloat16, float16 is timed: it is as wide."""
    if site.is_quantized and view.dequantizer(0) is not None:
        return "int8"
    narrow = is_cast or (not isinstance(site.kernel, str) and site.kernel.values.dtype.itemsize == 2)
    return "float16" if narrow else "float32"


class _Memory:
    """What was measured in earlier builds, in a file that anybody may have written.

    Args:
        path: The file; it need not be there. None: nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._entries = self._read()

    def find(self, layer: TimedLayer, forms: Collection[str]) -> Answer | None:
        """Returns what is known of a layer's forms; of the only GPU that is known, where there is none here."""
        if layer.gpu is None:
            gpus = {entry.layer.gpu for entry in self._entries}
            layer = dataclasses.replace(layer, gpu=gpus.pop() if len(gpus) == 1 else None)
        for entry in self._entries:
            times = {**entry.us, **dict.fromkeys(entry.refused)}
            if entry.layer == layer and entry.us and times.keys() <= set(forms):
                return Answer({form: times.get(form) for form in forms}, frozenset(entry.refused), entry.spread)
        return None

    def keep(self, layer: TimedLayer, answer: Answer) -> None:
        """Adds the times of a layer to what other builds have written meanwhile; what failed may not fail again."""
        if self._path is None:
            return
        us = {form: time for form, time in answer.times.items() if time is not None}
        # The engine is none the worse where the file cannot be written.
        with contextlib.suppress(InputError), locked(self._path):
            others = [entry for entry in self._read() if entry.layer != layer]
            self._entries = (*others, TimedForms(layer, us, tuple(sorted(answer.refused)), answer.spread))
            text = json.dumps(plain(self._entries), indent=1) + "\n"
            # Beside the timing cache that the user named, or in the user's own folder.
            atomic_write(self._path, text.encode())

    def _read(self) -> tuple[TimedForms, ...]:
        if self._path is None:
            return ()
        try:
            return decoded(tuple[TimedForms, ...], json_of(read_plain(self._path, CACHE_BYTES)))
        except (OSError, Fault):
            return ()


class _Race:
    """Times the forms of layers against each other, each layer once.

    Args:
        engine: The TensorRT that builds and runs them.
        plan: What the builder is told.
        memory: What was measured before.
    """

    def __init__(self, engine: Runtime, plan: BuildPlan, memory: _Memory) -> None:
        self._engine = engine
        self._plan = plan
        self._memory = memory
        self._answers: dict[str, Answer] = {}

    def times(self, layer: LayerAlone, forms: Sequence[str]) -> tuple[Answer, bool]:
        """Returns the times of a layer's forms, the usual one first, and whether they were known before."""
        info = self._engine.info
        plan = self._plan
        timed_layer = TimedLayer(info.gpu, info.family, info.version, plan.precision, plan.options, layer.key)
        same = json.dumps([layer.key, *forms])
        if same in self._answers:
            return self._answers[same], True
        old = self._memory.find(timed_layer, forms)
        # Of a form that failed nothing is known: where there is a GPU it is tried again.
        lacking = [form for form in forms if old and old.times[form] is None and form not in old.refused]
        missing = lacking if info.gpu else []
        if old is None or missing:
            answer = self._measure(layer, forms) if old is None else self._completed(layer, old, missing)
            self._memory.keep(timed_layer, answer)
        else:
            answer = old
        self._answers[same] = answer
        return answer, answer is old

    def _completed(self, layer: LayerAlone, old: Answer, missing: Sequence[str]) -> Answer:
        """Times what is not known against a form that is, and returns all as if measured with that."""
        base = next(form for form, time in old.times.items() if time is not None)
        fresh = self._measure(layer, [base, *missing])
        scale = (old.times[base] or 0.0) / (fresh.times[base] or 1.0)
        times = {form: round(time * scale, 2) for form in missing if (time := fresh.times[form]) is not None}
        # Nothing is new where the form that is known failed this time.
        if not fresh.times[base]:
            return old
        return Answer({**old.times, **times}, old.refused | fresh.refused, max(old.spread, fresh.spread))

    def _measure(self, layer: LayerAlone, forms: Sequence[str]) -> Answer:
        try:
            loader = self._engine.engines()
        except EnvironmentMissing as error:
            raise EnvironmentMissing(
                f"--tune times layers on the GPU: {error.message}",
                "Build where the GPU is (--on ADDRESS), or without --tune; a timing cache that has every answer does.",
            ) from error
        times: dict[str, float | None] = dict.fromkeys(forms)
        refused = set()
        with contextlib.ExitStack() as stack:
            running: dict[str, Execution] = {}
            outputs: dict[str, object] = {}
            for form in forms:
                with contextlib.suppress(BuildFailed, EngineFailed):
                    execution = self._opened(layer, form, loader, stack)
                    if execution is None:
                        refused.add(form)
                        continue
                    outputs[form] = execution.run()["y"]
                    if relative_error(next(iter(outputs.values())), outputs[form]) <= _WRONG:
                        running[form] = execution
                    else:
                        refused.add(form)
            times.update(zip(running, race(tuple(running.values())), strict=True))
            opened = functools.partial(self._opened, loader=loader, stack=stack)
            again, spread = self._again(layer, forms[0], running, times, opened)
        return Answer({**times, **again}, frozenset(refused), spread)

    def _again(
        self,
        layer: LayerAlone,
        usual: str,
        running: Mapping[str, Execution],
        times: Times,
        opened: Callable[[LayerAlone, str], Execution | None],
    ) -> tuple[dict[str, float], float]:
        """Builds the usual form and a faster one again: builders choose between kernels that are alike by chance.

        Returns:
            The mean of both builds of each, and how far apart two builds of one form are.
        """
        fastest = min(running, key=lambda form: times[form] or 0.0, default=usual)
        if fastest == usual or usual not in running:
            return {}, 1.0
        again = {}
        for form in (usual, fastest):
            with contextlib.suppress(BuildFailed, EngineFailed):
                second = opened(layer, form)
                if second is not None:
                    second.run()
                    again[form] = second
        medians = race([*(running[form] for form in again), *again.values()])
        pairs = dict(zip(again, zip(medians[: len(again)], medians[len(again) :], strict=True), strict=True))
        spread = max((max(pair) / min(pair) for pair in pairs.values() if min(pair)), default=1.0)
        return {form: round(statistics.mean(pair), 2) for form, pair in pairs.items()}, round(spread, 4)

    def _opened(
        self, layer: LayerAlone, form: str, loader: EngineLoader, stack: contextlib.ExitStack
    ) -> Execution | None:
        """Returns the engine of a layer in a form, ready to run, until the stack is closed; None as of `_build`."""
        data = self._build(layer, form)
        if data is None:
            return None
        execution = loader.load(data).open()
        stack.callback(execution.close)
        execution.feed(layer.feeds())
        return execution

    def _build(self, layer: LayerAlone, form: str) -> bytes | None:
        """Returns the engine of a layer in a form; None where the layer has no such form, or the parser refuses it.

        Raises:
            BuildFailed: The builder failed, which it need not do again: memory may have been short.
        """
        model = OnnxModel(layer.model(), Path("layer.onnx"))
        pass_ = MakeDeconvExplicit(choose=lambda *_: form)
        if not run_passes(model, (pass_,), self._engine.info.target).edits:
            return None
        profile = make_profile(model.inputs, {})
        plan = dataclasses.replace(self._plan, profiles=(profile,))
        parsed = self._engine.parse(model.serialize(), model.path)
        return None if isinstance(parsed, tuple) else bytes(parsed.build(plan).data)
