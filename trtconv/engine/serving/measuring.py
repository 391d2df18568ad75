"""Throughput, latencies, memory and power of engines that serve requests."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.core.documents.load import BenchLoad, Latencies, LoadSize
from trtconv.core.errors import EngineFailed
from trtconv.core.frozen import frozen
from trtconv.core.requests.bench import BenchRequest
from trtconv.engine.serving.scheduling import Arrival, Requests, ServedRequests, Steady, Trace, Workload, play
from trtconv.engine.serving.slots import ContextSlot, ServedEngine, open_slots
from trtconv.runtimes.tensorrt import EngineLoader, RangeNames


@frozen
class Work:
    """What one engine is to do.

    Args:
        index: Of the engine.
        served: The engine, and the sizes of its requests.
        arrivals: When they come; None: one after the other, of its only size.
    """

    index: int
    served: ServedEngine
    arrivals: Sequence[Arrival] | None = None


def measured(
    request: BenchRequest, runtime: EngineLoader, works: Sequence[Work], cache: bytes | None = None
) -> tuple[list[BenchLoad], bytes | None]:
    """Serves requests on several engines at the same time, until the first has had all of its own.

    Args:
        request: How many at a time, and how long.
        runtime: What runs the engines.
        works: What each is to do; the first leads.
        cache: Content of a runtime cache, for the first.

    Returns:
        What was measured of each, and what the runtime cache holds then.

    Raises:
        InputError: An engine has too few profiles for so many contexts.
        EnvironmentMissing: The GPU's memory does not suffice, or what names requests for profilers is not there.
        EngineFailed: An engine does not run.
    """
    ranges = runtime.ranges() if request.nvtx else None
    with contextlib.ExitStack() as stack:
        slots, memory = [], []
        for work in works:
            free, _ = runtime.memory()
            own = cache if work is works[0] else None
            slots.append(_ready(request, work.served, stack, ranges, own))
            memory.append(max(0, free - runtime.memory()[0]))
        loads = [
            Workload(group, _requests(request, work), background=work is not works[0])
            for work, group in zip(works, slots, strict=True)
        ]
        joules, begin = runtime.joules(), time.perf_counter()
        with _named(works[0].served):
            play(loads)
        seconds = time.perf_counter() - begin
        watts = None if joules is None else round(((runtime.joules() or joules) - joules) / seconds, 1)
        runtime_cache = slots[0][0].runtime_cache()
    reports = [
        _load(request, work, load.served, graph=all(slot.graph for slot in own), memory=usage, watts=watts)
        for work, load, own, usage in zip(works, loads, slots, memory, strict=True)
    ]
    return reports, runtime_cache


def _ready(
    request: BenchRequest,
    served: ServedEngine,
    stack: contextlib.ExitStack,
    ranges: RangeNames | None,
    cache: bytes | None,
) -> list[ContextSlot]:
    """Returns contexts that have run each size."""
    count = request.contexts or 1
    with _named(served):
        slots = open_slots(served, count, stack, copies=request.copies, ranges=ranges, cache=cache)
        for slot in slots:
            slot.warm_up(request.warmup / count)
    return slots


def _requests(request: BenchRequest, work: Work) -> Requests:
    if work.arrivals is not None:
        return Trace(work.arrivals)
    return Steady(request.duration if work.index == 0 else math.inf)


@contextlib.contextmanager
def _named(served: ServedEngine) -> Iterator[None]:
    try:
        yield
    except EngineFailed as error:
        raise EngineFailed(f"{served.name} does not run: {error.message}", error.hint) from error


def _load(
    request: BenchRequest, work: Work, served: ServedRequests, *, graph: bool, memory: int, watts: float | None
) -> BenchLoad:
    """Returns what was measured of one engine."""
    sizes = np.frombuffer(served.sizes, np.int64)
    arrived, started, ended = (np.frombuffer(times) for times in (served.arrived, served.started, served.ended))
    seconds = float(ended.max())
    arrivals = work.arrivals
    return BenchLoad(
        work.index,
        None if arrivals is None else str(request.arrivals),
        request.contexts or 1,
        request.copies,
        graph,
        len(ended),
        round(seconds, 4),
        round(len(ended) / seconds, 1),
        latency(ended - arrived),
        latency(started - arrived),
        tuple(
            LoadSize(size.profile, size.shapes, int((sizes == number).sum()), _median(ended - started, sizes == number))
            for number, size in enumerate(work.served.sizes)
        ),
        memory,
        watts,
        None if arrivals is None else offered(arrivals),
    )


def offered(arrivals: Sequence[Arrival]) -> float | None:
    """Returns how many requests came a second; None where all came at once."""
    last = max(arrival.at for arrival in arrivals)
    return round(len(arrivals) / last, 1) if last else None


def latency(seconds: NDArray[np.float64]) -> Latencies:
    """Returns mean, percentiles by nearest rank and largest of some times."""
    ordered = np.sort(seconds) * 1e6
    ranks = [ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.9, 0.95, 0.99, 1)]
    return Latencies(*(round(float(us), 2) for us in (ordered.mean(), *ranks)))


def _median(seconds: NDArray[np.float64], mask: NDArray[np.bool_]) -> float | None:
    return round(float(np.median(seconds[mask])) * 1e6, 2) if mask.any() else None
