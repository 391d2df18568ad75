"""How fast engines are. Runs in a process of its own; see `trtconv.engine.bench`."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.dims import Shape, ShapeProfile
from trtconv.core.documents.bench import BenchEngine, BenchRatio, BenchReport, BenchRow, GpuRuntime
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.files import atomic_write
from trtconv.core.frozen import frozen
from trtconv.core.outputs import Output, check_all
from trtconv.core.process import Tell
from trtconv.core.reading import CACHE_BYTES, read_plain
from trtconv.core.requests.bench import BenchRequest
from trtconv.core.requests.files import files_read
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch, ToldProgress
from trtconv.core.traffic import TIME, Traffic, read_traffic
from trtconv.engine.hearing import part
from trtconv.engine.loading import open_engine
from trtconv.engine.opening import EngineFile, read_engine, require_machine, require_stripped
from trtconv.engine.profiles import PICKS, inputs_of, narrowed, profile_for, profiles_of, shapes_at
from trtconv.engine.serving.arrivals import recording
from trtconv.engine.serving.measuring import Work, measured
from trtconv.engine.serving.slots import RequestSize, ServedEngine
from trtconv.runtimes.inputs import inputs_at
from trtconv.runtimes.tensorrt import Engine, EngineLoader, Execution, load_engines

_WAYS = tuple((graph, copies) for graph in (True, False) for copies in (False, True))
"""CUDA graph or not, with copies from and to the host or not."""
_FEWEST, _MOST = 20, 20_000
"""Inferences that a row is the median of."""


@frozen
class Loaded:
    """An engine that is timed.

    Args:
        subject: Its file.
        engine: The engine.
        profiles: Its optimization profiles.
        used_bytes: GPU memory that loading it took.
    """

    subject: EngineFile
    engine: Engine
    profiles: tuple[ShapeProfile, ...]
    used_bytes: int

    def reported(self) -> BenchEngine:
        """Returns what a report says of it."""
        file = self.subject.identity()
        return BenchEngine(
            file.path,
            file.sha256,
            file.bytes,
            file.signed_by,
            self.engine.layer_count,
            self.used_bytes,
            self.engine.memory_bytes,
            tuple(self.engine.profile_memory_bytes),
        )


@frozen
class Point:
    """Where engines are timed.

    Args:
        profile: Index of the first engine's profile.
        size: "min", "opt", "max", or "given".
        shapes: Input name to its shape.
        values: Elements of inputs that hold shapes.
    """

    profile: int
    size: str
    shapes: Mapping[str, Shape]
    values: Mapping[str, Sequence[int]]


def serve(request: BenchRequest, tell: Tell) -> dict[str, float]:
    """Times one engine, or two in turns, and tells of every row.

    Returns:
        Seconds by stage.
    """
    clock = Stopwatch(ToldProgress(tell))
    with clock.stage(Stage.LOAD):
        _check_cache(request)
        # What can be wrong with the files is said before anything is loaded.
        subjects = [read_engine(request.engine, request.report, trust=request.trust, key=request.key)]
        others = (*(() if request.versus is None else (request.versus,)), *request.beside)
        subjects += [read_engine(path, None, trust=request.trust, key=request.key) for path in others]
        traffic = None if request.arrivals is None else read_traffic(request.arrivals, TIME)
        runtime = load_engines(next((s.family for s in subjects if s.family), None))
        require_stripped(subjects, request.weights)
        for subject in subjects:
            require_machine(subject, runtime, with_weights=request.weights is None)
        engines = [_load(runtime, subject, request.weights, clock) for subject in subjects]
        if request.versus is not None:
            _require_same_inputs(engines)
        serving = _works(request, engines, traffic) if request.is_load else []
        points = [] if request.is_load else _points(request, engines[0])
    described = GpuRuntime(runtime.family, runtime.version, runtime.gpu_name, runtime.driver_version)
    tell(part(BenchReport(tuple(engine.reported() for engine in engines), (), described)))
    for point in points:
        with clock.stage(Stage.TIME):
            tell(part(_time_point(request, engines, point)))
    for works in serving:
        with clock.stage(Stage.TIME):
            tell(part(_time_load(request, runtime, works)))
    return clock.seconds


def _check_cache(request: BenchRequest) -> None:
    """Raises InputError where the runtime cache cannot be written, or would overwrite what is timed."""
    if request.cache is None:
        return
    cache = Output(request.cache, "the runtime cache", hint="Give another --runtime-cache.")
    check_all([cache], files_read(request))


def _require_same_inputs(engines: Sequence[Loaded]) -> None:
    names = [sorted(t.name for t in loaded.engine.tensors if t.kind == "input") for loaded in engines]
    if names[0] != names[-1]:
        paths = [loaded.subject.path for loaded in engines]
        raise InputError(
            f"{paths[-1]} takes {', '.join(names[-1])}, and {paths[0]} takes {', '.join(names[0])}",
            "Compare engines with the same inputs.",
        )


def _load(runtime: EngineLoader, subject: EngineFile, weights: Path | None, clock: Stopwatch) -> Loaded:
    before, _ = runtime.memory()
    engine = open_engine(subject, runtime, weights, clock)
    after, _ = runtime.memory()
    profiles = profiles_of(subject, engine, inputs_of(subject, engine))
    return Loaded(subject, engine, profiles, max(0, before - after))


def _points(request: BenchRequest, loaded: Loaded) -> list[Point]:
    """Returns the sizes to time: those that were given, or min, opt and max of every profile."""
    if request.shapes:
        names = [t.name for t in loaded.engine.tensors if t.kind == "input"]
        for name in (*request.shapes, *names):
            if (name in request.shapes) != (name in names):
                raise InputError(f"--shape for input {name!r}: the engine has {', '.join(names)}", "Give each a shape.")
        return [_point(profile_for(loaded.profiles, request.shapes), "given", request.shapes, loaded)]
    points: list[Point] = []
    for index, profile in narrowed(inputs_of(loaded.subject, loaded.engine), loaded.profiles, request.dims):
        earlier: list[Mapping[str, Shape]] = []
        for pick in PICKS:
            shapes = shapes_at(profile, pick)
            if shapes not in earlier:
                earlier.append(shapes)
                points.append(_point(index, pick, shapes, loaded))
    return points


def _works(request: BenchRequest, engines: Sequence[Loaded], traffic: Traffic | None) -> list[list[Work]]:
    """Returns what engines are to do at the same time, for one size after the other or a recording of requests."""
    first, *others = engines
    beside = [Work(index, _served(other, [_opt_of(other, 0)])) for index, other in enumerate(others, start=1)]
    inputs = inputs_of(first.subject, first.engine)
    if traffic is not None:
        if request.shapes:
            raise InputError("--shapes does not go together with --arrivals", "Name the dimensions in the table.")
        came = recording(traffic, inputs, first.profiles, request.dims, request.seconds)
        return [[Work(0, _served(first, came.sizes), came.arrivals), *beside]]
    sizes: list[RequestSize] = []
    if request.shapes:
        sizes = [_request_size(point) for point in _points(request, first)]
    else:
        for index, profile in narrowed(inputs, first.profiles, request.dims):
            shapes = shapes_at(profile, "opt")
            if shapes not in [size.shapes for size in sizes]:
                sizes.append(_request_size(_point(index, "opt", shapes, first)))
    return [[Work(0, _served(first, [size])), *beside] for size in sizes]


def _request_size(point: Point) -> RequestSize:
    return RequestSize(point.profile, point.shapes, point.values)


def _opt_of(loaded: Loaded, profile: int) -> RequestSize:
    return _request_size(_point(profile, "opt", shapes_at(loaded.profiles[profile], "opt"), loaded))


def _served(loaded: Loaded, sizes: Sequence[RequestSize]) -> ServedEngine:
    return ServedEngine(str(loaded.subject.path), loaded.engine, loaded.profiles, sizes)


def _time_load(request: BenchRequest, runtime: EngineLoader, works: Sequence[Work]) -> BenchReport:
    loads, cache = measured(request, runtime, works, _read(request.cache))
    _write(request.cache, cache)
    return BenchReport((), (), loads=tuple(loads))


def _point(index: int, size: str, shapes: Mapping[str, Shape], loaded: Loaded) -> Point:
    pick = size if size in PICKS else "opt"
    values = {name: getattr(bounds, pick) for name, bounds in loaded.profiles[index].values.items()}
    return Point(index, size, shapes, values)


def _time_point(request: BenchRequest, engines: Sequence[Loaded], point: Point) -> BenchReport:
    """Times all ways to run at a size; returns that part of the report."""
    with contextlib.ExitStack() as stack:
        executions: list[Execution] = []
        try:
            cache = _read(request.cache)
            for loaded in engines:
                profile = point.profile if loaded is engines[0] else profile_for(loaded.profiles, point.shapes)
                execution = loaded.engine.open(profile, cache)
                stack.callback(execution.close)
                execution.feed(inputs_at(loaded.engine.tensors, point.shapes, point.values))
                executions.append(execution)
        except EnvironmentMissing as error:
            return BenchReport((), (), incomplete=f"{point.size} of profile {point.profile}: {error.message}")
        timed = {way: _time_way(request, executions, *way) for way in _WAYS}
        _write(request.cache, executions[0].runtime_cache())
    rows, ratios = [], []
    for (graph, copies), samples in timed.items():
        where = point.profile, point.size, point.shapes, graph, copies
        rows += [_row(BenchRow(number, *where), sample) for number, sample in enumerate(samples)]
        if len(samples) == 2 and samples[0] and samples[1]:
            ratio = statistics.median(samples[0].single) / statistics.median(samples[1].single)
            ratios.append(BenchRatio(*where, round(ratio, 4)))
    return BenchReport((), tuple(rows), ratios=tuple(ratios))


@frozen
class Samples:
    """Times in microseconds.

    Args:
        single: Of single inferences.
        in_a_row: Of one inference where many follow each other without waiting.
    """

    single: list[float]
    in_a_row: float


def _time_way(
    request: BenchRequest, executions: Sequence[Execution], graph: bool, copies: bool
) -> list[Samples | None]:
    """Times engines in turns, so that the GPU's clock and heat are the same for all; None for one without a graph."""
    launches = [execution.launcher(graph=graph, copies=copies) for execution in executions]
    runs = [(e, launch) for e, launch in zip(executions, launches, strict=True) if launch is not None]
    if len(runs) < len(executions):
        return [None] * len(executions)
    once = max(_warm_up(execution, launch, request.warmup) for execution, launch in runs)
    rounds = int(min(_MOST, max(_FEWEST, request.duration * 1e6 / once)))
    samples: list[list[float]] = [[] for _ in runs]
    for turn in range(rounds):
        # The order changes, so that none always follows the same other.
        for index in range(len(runs)) if turn % 2 else reversed(range(len(runs))):
            execution, launch = runs[index]
            samples[index].append(execution.microseconds(launch))
    many = int(min(1000, max(5, 1e5 / once)))
    rows = [execution.microseconds(launch, many) / many for execution, launch in runs]
    return [Samples(times, row) for times, row in zip(samples, rows, strict=True)]


def _warm_up(execution: Execution, launch: Any, seconds: float) -> float:
    """Runs until the GPU's clock has risen and nothing is compiled any more; returns the last time in microseconds."""
    until = time.monotonic() + seconds
    last = execution.microseconds(launch)
    while time.monotonic() < until:
        last = execution.microseconds(launch)
    return max(last, 1.0)


def _row(row: BenchRow, samples: Samples | None) -> BenchRow:
    """Returns a row with what was measured; as it is where nothing was."""
    if samples is None:
        return row
    ordered = sorted(samples.single)
    return dataclasses.replace(
        row,
        runs=len(ordered),
        median_us=round(statistics.median(ordered), 2),
        p99_us=round(ordered[math.ceil(0.99 * len(ordered)) - 1], 2),
        min_us=round(ordered[0], 2),
        throughput_per_s=round(1e6 / samples.in_a_row, 1),
    )


def _read(cache: Path | None) -> bytes | None:
    if cache is None:
        return None
    try:
        return read_plain(cache, CACHE_BYTES) if cache.exists() else b""
    except OSError as error:
        raise InputError(
            f"{cache} cannot be read: {error.strerror or error}", "Give another --runtime-cache."
        ) from error


def _write(cache: Path | None, content: bytes | None) -> None:
    if cache is not None and content is not None:
        atomic_write(cache, content, through_links=True)
