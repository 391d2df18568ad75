"""Engines timed in turns, and several builds of one network of which the fastest is taken (`build --best-of`)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from trtconv.core.documents.best_of import BestOf, typical
from trtconv.core.documents.build import BuildPlan
from trtconv.core.errors import BuildFailed, EngineFailed, EnvironmentMissing
from trtconv.core.gpus import gpu_labels
from trtconv.core.requests.build import BuildRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.pipeline.parse import build_in_thread
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt import EngineBlob, EngineLoader, Execution, ParsedNetwork, Runtime, RuntimeInfo

_ROUNDS, _WARM_UP_US, _SAMPLE_US = 31, 20_000.0, 1000.0
_TUNED_BUILDS = 4
"""With `--tune`: the fastest of four builds was within 2 % of the fastest of all; one alone took up to twice that."""


def race(executions: Sequence[Execution]) -> list[float]:
    """Times engines in turns, so that the GPU's clock and heat are the same for all.

    Args:
        executions: What is timed; fed, and run once.

    Returns:
        The median time of an inference of each, in microseconds.
    """
    launches = [
        execution.launcher(graph=True, copies=False) or execution.launcher(graph=False, copies=False)
        for execution in executions
    ]
    runs = [(execution, launch) for execution, launch in zip(executions, launches, strict=True) if launch is not None]
    repeats = []
    for execution, launch in runs:
        spent = once = 0.0
        while spent < _WARM_UP_US:
            once = max(1.0, execution.microseconds(launch))
            spent += once
        repeats.append(max(1, int(_SAMPLE_US / once)))
    # Loaded only here: most builds have no race.
    import statistics

    samples: list[list[float]] = [[] for _ in runs]
    for turn in range(_ROUNDS):
        for index in range(len(runs)) if turn % 2 else reversed(range(len(runs))):
            execution, launch = runs[index]
            samples[index].append(execution.microseconds(launch, repeats[index]) / repeats[index])
    return [round(statistics.median(sample), 2) for sample in samples]


def require_race(info: RuntimeInfo) -> None:
    """Raises EnvironmentMissing where all builds of a network are alike."""
    if info.capabilities.builds_without_gpu:
        raise EnvironmentMissing(
            "--best-of has no effect on TensorRT-RTX, which chooses kernels where the engine runs: builds are alike",
            "Leave out --best-of.",
        )


def require_gpu(target: Target | None) -> None:
    """Raises EnvironmentMissing where the GPU here is not the one that is asked for."""
    if target is None or target.gpu is None:
        return
    card = tensorrt.card()
    if card is None or target.gpu not in gpu_labels(card.name, card.capability):
        raise EnvironmentMissing(
            f"{target} was asked for, but the GPU here is {card.name if card else 'none that CUDA offers'}",
            "Build it where that GPU is: --on ADDRESS, or trtconv plan --write (docs/farm.md).",
        )


def builds_of(request: BuildRequest, runtime: Runtime) -> int:
    """Returns how often a network is built: with `--tune` several times, or chance outweighs what its forms gain."""
    if not request.tune or request.tactics_of is not None or runtime.info.capabilities.builds_without_gpu:
        return request.best_of
    try:
        runtime.engines()
    except EnvironmentMissing:
        # Another machine with the same GPU has measured the layers; nothing is run on this one.
        return request.best_of
    return max(request.best_of, _TUNED_BUILDS)


def best_build(
    network: ParsedNetwork,
    plan: BuildPlan,
    runtime: Runtime,
    count: int,
    clock: Stopwatch,
    meanwhile: Sequence[Callable[[], object]],
    *,
    must_run: bool = True,
) -> tuple[EngineBlob, BestOf]:
    """Builds a network several times, times the engines in turns, and returns the fastest.

    The first is what a build without `--best-of` makes. The others measure everything anew: with the timings of the
    first they would be the same engine again.

    Args:
        network: What to build.
        plan: How.
        runtime: What builds and runs.
        count: How many builds, 2 or more.
        clock: Times it.
        meanwhile: What is to be done beside the first build.
        must_run: Whether it is an error that none of the engines runs; else the first is taken.

    Raises:
        BuildFailed: The first build failed.
        EnvironmentMissing: There is no GPU to run engines on.
        EngineFailed: None of the engines runs, and one must.
    """
    loader = _loader(runtime)
    blobs: list[EngineBlob | None] = [build_in_thread(network, plan, clock, meanwhile)]
    anew = dataclasses.replace(plan, timing_cache=None)
    for number in range(1, count):
        clock.progress.phase("builds of the network", number, count)
        blobs.append(None)
        with contextlib.suppress(BuildFailed):
            blobs[-1] = build_in_thread(network, anew, clock)
    clock.progress.phase("builds of the network", count, count)
    with clock.stage(Stage.RACE):
        times = network_times(blobs, plan, loader)
    winner = min(range(count), key=lambda number: typical(times[number]))
    best = blobs[winner]
    assert best is not None  # Where none runs, `winner` is the first, which was built.
    if not times[winner] and must_run:
        raise EngineFailed("none of the engines of --best-of runs here", "Build without --best-of.")
    return best, BestOf(times, winner)


def _loader(runtime: Runtime) -> EngineLoader:
    try:
        return runtime.engines()
    except EnvironmentMissing as error:
        raise EnvironmentMissing(
            f"--best-of times engines on the GPU: {error.message}",
            "Build where the GPU is (--on ADDRESS), or without --best-of.",
        ) from error


def network_times(
    blobs: Sequence[EngineBlob | None], plan: BuildPlan, loader: EngineLoader
) -> tuple[tuple[float, ...], ...]:
    """Returns the microseconds of each engine with each profile, at its opt; none of one that does not run.

    Args:
        blobs: The engines; None for one that was not built.
        plan: What they were built for.
        loader: What runs them.
    """
    engines = [None if blob is None else bytes(blob.data) for blob in blobs]
    times: list[list[float]] = [[] for _ in engines]
    running = {index for index, data in enumerate(engines) if data is not None}
    for profile in range(max(1, len(plan.profiles))):
        with contextlib.ExitStack() as stack:
            opened = dict(_opened(engines, running, plan, profile, loader, stack))
            for index, us in zip(opened, race(list(opened.values())), strict=True):
                times[index].append(us)
            running &= opened.keys()
    return tuple(tuple(us) if index in running else () for index, us in enumerate(times))


def _opened(
    engines: Sequence[bytes | None],
    which: set[int],
    plan: BuildPlan,
    profile: int,
    loader: EngineLoader,
    stack: contextlib.ExitStack,
) -> Iterator[tuple[int, Execution]]:
    """Yields the engines that run with a profile, ready to be timed until the stack is closed."""
    # Loaded only here: most builds run nothing.
    from trtconv.runtimes.inputs import inputs_at

    for index in sorted(which):
        with contextlib.suppress(EngineFailed, EnvironmentMissing):
            engine = loader.load(engines[index] or b"", host_code=plan.has_host_code)
            shapes: Mapping[str, tuple[int, ...]] = {}
            values: Mapping[str, tuple[int, ...]] = {}
            if plan.profiles:
                bounds = plan.profiles[profile]
                shapes = {name: limits.opt for name, limits in bounds.inputs.items()}
                values = {name: limits.opt for name, limits in bounds.values.items()}
            execution = engine.open(profile if len(engine.profiles) > 1 else 0)
            stack.callback(execution.close)
            execution.feed(inputs_at(engine.tensors, shapes, values))
            execution.run()
            yield index, execution
