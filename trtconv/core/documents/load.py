"""What bench measured of engines under load; no numbers are made here."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.core.dims import Shape
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class Latencies(Document):
    """Times of many requests, in microseconds: their mean and largest, and percentiles by nearest rank."""

    mean_us: float
    p50_us: float
    p90_us: float
    p95_us: float
    p99_us: float
    max_us: float


@frozen
class LoadSize(Document):
    """The requests of one size.

    Args:
        profile: Index of the optimization profile that takes them.
        shapes: Input name to its shape.
        requests: How many were answered.
        median_us: Microseconds from the launch to the end of one; None where there was none.
    """

    profile: int
    shapes: Mapping[str, Shape]
    requests: int
    median_us: float | None = None


@frozen
class BenchLoad(Document):
    """One engine under load.

    Args:
        engine: Index of the engine.
        arrivals: The file that says when requests came; None: each followed the one before it.
        contexts: How many requests ran at a time at most, each with an execution context and a stream.
        copies: Whether inputs and outputs were copied from and to the host.
        graph: Whether each ran as a CUDA graph.
        requests: How many were answered.
        seconds: From the start to the last answer.
        throughput_per_s: Requests answered a second.
        latency: From the arrival of a request to the end of its copies to the host.
        queue: From its arrival to its launch.
        sizes: The sizes of the requests.
        memory_bytes: GPU memory that contexts, inputs and outputs took, beside the engine's own.
        power_w: Mean power of the whole GPU meanwhile; None where the driver does not tell.
        offered_per_s: Requests that came a second; None without `arrivals`.
    """

    engine: int
    arrivals: str | None
    contexts: int
    copies: bool
    graph: bool
    requests: int
    seconds: float
    throughput_per_s: float
    latency: Latencies
    queue: Latencies
    sizes: tuple[LoadSize, ...]
    memory_bytes: int
    power_w: float | None = None
    offered_per_s: float | None = None
