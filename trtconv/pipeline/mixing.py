"""The samples of `--precision auto`, and the search for the mix of types on them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence, Set

from trtconv.core.dims import InputRange, ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.mix import Mix
from trtconv.core.errors import BuildFailed, InputError, TrtconvError
from trtconv.core.preprocessing import parse_preprocessing
from trtconv.core.requests.build import BuildRequest
from trtconv.core.stopwatch import Stopwatch
from trtconv.graph.arrays import Feeds
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.parse import build_in_thread, parse_model
from trtconv.precision import Types
from trtconv.precision.apply import recast
from trtconv.precision.mixing import EngineRun, Mixer, NodeTimes
from trtconv.precision.quantize.metrics import Goal, Metric
from trtconv.precision.quantize.samples import InputSamples, random_samples, read_samples
from trtconv.runtimes.tensorrt import Execution, Runtime

_MOST_SAMPLES = 4
"""All of them are run for every mix that is tried."""
_LEAST_TOLD = 0.8
"""Share of an engine's time that has to be of known nodes: layers between them only change formats."""


def samples_of(
    request: BuildRequest, model: OnnxModel, profiles: Sequence[ShapeProfile], *, settled: bool
) -> InputSamples:
    """Returns the samples to measure on: some of those that were given, spread over them, or random ones.

    Args:
        request: What is built.
        model: The model in its file.
        profiles: One of them contains each sample; the first has the sizes of random inputs, and those that a function
            is asked for.
        settled: Whether they are those of the engine; else, rounded, they may become wider.

    Raises:
        InputError: They cannot be read, or do not fit the model or the profiles.
    """
    ranges = profiles[0].inputs if profiles else {}
    shapes = {spec.name: ranges[spec.name].opt if spec.name in ranges else _fixed(spec.dims) for spec in model.inputs}
    if request.data is None:
        return random_samples(model, [shapes], 1, 0)
    preprocessing = None if request.preprocess is None else parse_preprocessing(request.preprocess)
    samples = read_samples(model, request.data, [shapes], _MOST_SAMPLES, 0, request.images or preprocessing)
    subset = samples[:: max(1, len(samples) // _MOST_SAMPLES)][:_MOST_SAMPLES]
    if settled or not request.rounded:
        _refuse_other_sizes(model, subset, profiles)
    return subset


def sampled(request: BuildRequest, model: OnnxModel, profiles: Sequence[ShapeProfile]) -> str:
    """Returns what tells the samples, and the code of a metric, from others: SHA-256 of both, empty without them."""
    goal = goal_of(request)
    values = "" if request.data is None else samples_of(request, model, profiles, settled=False).digest()
    return f"{values} {'' if goal is None else goal.metric.sha256}".strip()


def goal_of(request: BuildRequest) -> Goal | None:
    """Returns what counts on the samples, beside the error; None: the error does.

    Raises:
        InputError: The metric is none, or no limit goes with it.
    """
    if request.metric is None:
        return None
    if request.tolerance == BuildRequest.tolerance:
        raise InputError(
            f"--metric {request.metric} says what counts, and not what is good enough",
            "Add --tolerance E, the worst value that is allowed: --metric psnr --tolerance 35, or iou and 0.95.",
        )
    return Goal(Metric(request.metric), request.tolerance)


def _refuse_other_sizes(model: OnnxModel, samples: InputSamples, profiles: Sequence[ShapeProfile]) -> None:
    """Raises InputError where a sample is outside of all profiles."""
    for file, feeds in zip(samples.files, samples, strict=True):
        outside = [list(_outside(model, feeds, profile)) for profile in profiles]
        if outside and all(outside):
            # Of several profiles the one that lacks least of it.
            name, size, low, high = min(outside, key=len)[0]
            whose = "the profile takes" if len(profiles) == 1 else "the profile that fits best takes"
            raise InputError(
                f"{file}: {name} is {size}, and {whose} {low} to {high}",
                "Widen the bounds (--dim, --profile), or leave that sample out of --data.",
            )


def _outside(model: OnnxModel, feeds: Feeds, profile: ShapeProfile) -> Iterator[tuple[str, int, int, int]]:
    """Yields the sizes of a sample that are outside a profile, with what they are of and their bounds."""
    for spec in model.inputs:
        feed = feeds[spec.name]
        bounds = profile.inputs[spec.name]
        for axis, (size, low, high) in enumerate(zip(feed.shape, bounds.min, bounds.max, strict=True)):
            if not low <= size <= high:
                yield f"dimension {axis} ({spec.dims[axis]}) of input {spec.name!r}", size, low, high
        values = profile.values.get(spec.name)
        for number, low, high in zip(feed.flat, values.min, values.max, strict=False) if values else ():
            if not low <= number <= high:
                yield f"an element of input {spec.name!r}", int(number), low, high


def _fixed(dims: tuple[int | str | None, ...]) -> tuple[int, ...]:
    return tuple(size for size in dims if isinstance(size, int))


def mixed(
    request: BuildRequest,
    model: OnnxModel,
    pinned: Types,
    samples: InputSamples,
    runtime: Runtime,
    plan: BuildPlan,
    clock: Stopwatch,
) -> Mix:
    """Finds the types.

    Args:
        request: What is built.
        model: The model after the passes, its nodes named.
        pinned: The types of nodes that are asked for.
        samples: What to measure on.
        runtime: What builds; its GPU, if there is one, times the parts.
        plan: How it builds.
        clock: Told how far it is.

    Raises:
        InputError: The model does not run on the samples, or a node cannot have the type that is asked for it.
    """
    tell = functools.partial(clock.progress.phase, "mix of types")
    by_flags = runtime.info.capabilities.builder_precision_flags
    # Made once: a function of the user's need not make the same twice.
    feeds = list(samples)
    try:
        mixer = Mixer(model, feeds, pinned, by_flags=by_flags, tell=tell, goal=goal_of(request))
    except RuntimeError as error:
        raise InputError(
            f"--precision auto cannot run {model.path}: {error}", "Choose a precision, or give --data that it runs on."
        ) from error
    timed = functools.partial(node_times, model, feeds[0], runtime, plan)
    ran = functools.partial(run_engine, feeds, runtime, plan)
    return mixer.search(request.tolerance, samples.source, timed, ran)


def run_engine(
    samples: Sequence[Feeds],
    runtime: Runtime,
    plan: BuildPlan,
    model: OnnxModel,
    precision: str,
    nodes: Mapping[str, str],
) -> EngineRun:
    """Builds a model for the sizes of samples, and runs it on them.

    Args:
        samples: Inputs; the first are the typical ones.
        runtime: What builds and runs.
        plan: How it builds.
        model: The model, cast where the runtime is strongly typed.
        precision: What the builder is told, where it has flags.
        nodes: Node to its own type, likewise.
    """
    if runtime.info.gpu is None:
        return EngineRun(why="there is no GPU")
    try:
        with _opened(model, samples, runtime, plan, precision, nodes) as execution:
            return EngineRun([_outputs(execution, feeds) for feeds in samples])
    except TrtconvError as error:
        return EngineRun(why=error.message)


def _outputs(execution: Execution, feeds: Feeds) -> Feeds:
    execution.feed(feeds)
    return execution.run()


def node_times(model: OnnxModel, feeds: Feeds, runtime: Runtime, plan: BuildPlan, precision: str) -> NodeTimes:
    """Builds a model in float32 and in a precision for one size, and times the layers on the GPU.

    Args:
        model: The model, its nodes named.
        feeds: Inputs.
        runtime: What builds and runs.
        plan: How it builds.
        precision: The other precision.
    """
    if runtime.info.gpu is None:
        return NodeTimes(why="there is no GPU")
    try:
        full, half = (_layer_times(model, feeds, runtime, plan, kind) for kind in ("as-is", precision))
    except TrtconvError as error:
        return NodeTimes(why=error.message)
    names = {node.name for node in model.proto.graph.node}
    ours, theirs = (_by_node(times, names) for times in (full, half))
    node_us, spent = sum(ours.values()), sum(us for _, us in full)
    if node_us < _LEAST_TOLD * spent or not spent:
        return NodeTimes(why="the engine's layers do not say which nodes they are of")
    both = {name: (ours.get(name, 0.0), theirs.get(name, 0.0)) for name in ours.keys() | theirs.keys()}
    return NodeTimes(both, runtime.info.gpu)


def _layer_times(
    model: OnnxModel, feeds: Feeds, runtime: Runtime, plan: BuildPlan, precision: str
) -> list[tuple[str, float]]:
    copy = model.copy()
    if not runtime.info.capabilities.builder_precision_flags:
        recast(copy, Types(precision), _profile([feeds], plan))
    with _opened(copy, [feeds], runtime, plan, precision, {}) as execution:
        execution.feed(feeds)
        return execution.layer_times()


@contextlib.contextmanager
def _opened(
    model: OnnxModel,
    samples: Sequence[Feeds],
    runtime: Runtime,
    plan: BuildPlan,
    precision: str,
    nodes: Mapping[str, str],
) -> Iterator[Execution]:
    """Makes an engine for the sizes of samples ready to run; its arguments are those of `run_engine`."""
    # The time counts to the stage that asks.
    clock = Stopwatch(None)
    # Where nothing can run an engine, none is built.
    engines = runtime.engines()
    network, refused = parse_model(model, runtime, clock)
    if network is None:
        raise BuildFailed(refused[0].message if refused else "the parser refused it")
    # Without its weights it would compute nothing.
    options = dataclasses.replace(plan.options, strip_weights=False)
    trial_plan = dataclasses.replace(
        plan, profiles=(_profile(samples, plan),), precision="as-is", node_precisions={}, options=options, trial=True
    )
    if runtime.info.capabilities.builder_precision_flags:
        trial_plan = dataclasses.replace(trial_plan, precision=precision, node_precisions=nodes)
    blob = build_in_thread(network, trial_plan, clock)
    execution = engines.load(bytes(blob.data), host_code=options.version_compatible).open()
    try:
        yield execution
    finally:
        execution.close()


def _profile(samples: Sequence[Feeds], plan: BuildPlan) -> ShapeProfile:
    """Returns the profile of the samples' sizes, with those of the first as the typical ones."""
    ranges = {}
    for name, first in samples[0].items():
        shapes = [feeds[name].shape for feeds in samples]
        smallest, largest = (tuple(map(choose, zip(*shapes, strict=True))) for choose in (min, max))
        ranges[name] = InputRange(smallest, first.shape, largest)
    return ShapeProfile(ranges, {}, plan.profiles[0].values if plan.profiles else {})


def _by_node(times: Sequence[tuple[str, float]], names: Set[str]) -> dict[str, float]:
    """Returns the time of layers by the first node that their names, joined of the nodes', have."""
    sums: dict[str, float] = {}
    for layer, us in times:
        nodes = [name for name in layer.split(" + ") if name in names]
        if nodes:
            sums[nodes[0]] = sums.get(nodes[0], 0.0) + us
    return sums
