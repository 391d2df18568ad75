"""Engines timed in turns, and several builds of one network of which the fastest is taken (`build --best-of`)."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from trtconv.core.documents.best_of import BestOf, typical
from trtconv.core.documents.build import BuildPlan
from trtconv.core.errors import BuildFailed, EngineFailed, EnvironmentMissing
from trtconv.core.files import atomic_write
from trtconv.core.gpus import gpu_labels
from trtconv.core.reading import CACHE_BYTES, read_plain
from trtconv.core.requests.build import BuildRequest
from trtconv.core.scratch import Scratch
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.pipeline.parse import build_in_thread
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt import EngineBlob, EngineLoader, Execution, ParsedNetwork, Runtime, RuntimeInfo

_DRAWS, _DRAW_BYTES = 16, 2 << 30
"""Where one build in five has the fast copy, sixteen miss it once in 36 times. All engines are held at a time."""
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
    first they would be the same engine again. Of the fastest the copies are drawn again, where they can be.

    Args:
        network: What to build.
        plan: How.
        runtime: What builds and runs.
        count: How many builds, 2 or more.
        meanwhile: What is to be done beside the first build.
        must_run: Whether it is an error that none of the engines runs; else the first is taken.

    Raises:
        BuildFailed: The first build failed.
        EnvironmentMissing: There is no GPU to run engines on.
        EngineFailed: None of the engines runs, and one must.
    """
    contest = _Contest(network, plan, _loader(runtime), clock)
    started = time.monotonic()
    with Scratch("builds") as scratch:
        first = plan if plan.timing_cache else dataclasses.replace(plan, timing_cache=scratch.path / "0")
        others = [dataclasses.replace(plan, timing_cache=scratch.path / str(number)) for number in range(1, count)]
        contest.blobs.append(build_in_thread(network, first, clock, meanwhile))
        for number, other in enumerate(others, 1):
            clock.progress.phase("builds of the network", number, count)
            contest.add(other)
        clock.progress.phase("builds of the network", count, count)
        spent = time.monotonic() - started
        best = contest.run()
        if contest.times[best] and contest.add_other_copies(
            (first, *others)[best], best, spent, scratch.path / "again"
        ):
            best = contest.run()
    blob = contest.blobs[best]
    assert blob is not None  # Where none runs, it is the first, which was built.
    if not contest.times[best] and must_run:
        raise EngineFailed("none of the engines of --best-of runs here", "Build without --best-of.")
    return blob, BestOf(contest.times, best, len(contest.blobs) - count)


@dataclasses.dataclass
class _Contest:
    """Builds of one network that are timed in turns.

    Args:
        network: What is built.
        plan: How.
        loader: What runs the engines.
        clock: Times it.
        blobs: The engines; None for one that was not built.
        times: As `network_times` returns them.
    """

    network: ParsedNetwork
    plan: BuildPlan
    loader: EngineLoader
    clock: Stopwatch
    blobs: list[EngineBlob | None] = dataclasses.field(default_factory=list)
    times: tuple[tuple[float, ...], ...] = ()

    def add(self, plan: BuildPlan) -> None:
        """Builds once more; where that fails, the others are none the worse."""
        self.blobs.append(None)
        with contextlib.suppress(BuildFailed):
            self.blobs[-1] = build_in_thread(self.network, plan, self.clock)

    def run(self) -> int:
        """Times all engines; returns the position of the fastest, and the first where none runs."""
        with self.clock.stage(Stage.RACE):
            self.times = network_times(self.blobs, self.plan, self.loader)
        return min(range(len(self.blobs)), key=lambda number: typical(self.times[number]))

    def add_other_copies(self, plan: BuildPlan, position: int, seconds: float, file: Path) -> int:
        """Builds an engine again, each time with copies, quantisers and pointwise kernels that are measured anew.

        How long these take depends on what stands beside them, and no algorithm selector is asked about them. Without
        the kernels of convolutions, which the timing cache keeps, that takes a fraction of a whole build.

        Args:
            plan: How the engine was built; its timing cache has what was measured.
            position: That of the engine.
            seconds: How long this may take.
            file: Where the timing cache of these builds goes.

        Returns:
            How many such builds there are.
        """
        # Loaded only here: most builds are no race.
        from trtconv.runtimes.tensorrt.timing_format import without_copies

        blob, timings, end = self.blobs[position], b"", time.monotonic() + seconds
        with contextlib.suppress(OSError):
            timings = without_copies(read_plain(plan.timing_cache, CACHE_BYTES)) if plan.timing_cache else b""
        if blob is None or not timings:
            return 0
        count, draws = min(_DRAWS, _DRAW_BYTES // max(1, len(blob.data))), 0
        while draws < count and time.monotonic() < end:
            self.clock.progress.phase("builds with other copies", draws, count)
            # Each build leaves there what it measured.
            atomic_write(file, timings)
            self.add(dataclasses.replace(plan, timing_cache=file))
            draws += 1
        if draws:
            self.clock.progress.phase("builds with other copies", count, count)
        return draws


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
