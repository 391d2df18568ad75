"""What bench measured; no numbers are made here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trtconv.core.dims import Shape
from trtconv.core.documents.load import BenchLoad
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class GpuRuntime(RuntimeIdentity):
    """The TensorRT that ran an engine.

    Args:
        driver: Newest CUDA version that the driver knows.
    """

    driver: str | None = None


@frozen
class BenchEngine(
    FileIdentity,
    keys="path sha256- bytes- signed_by- layers weight_memory_bytes activation_memory_bytes profile_memory_bytes",
):
    """An engine that was timed.

    Args:
        layers: How many it has.
        weight_memory_bytes: GPU memory that loading it took.
        activation_memory_bytes: That it takes to run, with its largest profile.
        profile_memory_bytes: The same by profile; empty where TensorRT does not tell.
    """

    layers: int | None = None
    weight_memory_bytes: int | None = None
    activation_memory_bytes: int | None = None
    profile_memory_bytes: tuple[int, ...] = ()


@frozen
class BenchRow(Document):
    """One size, one engine, one way to run it.

    Args:
        engine: Index of the engine.
        profile: Index of the first engine's optimization profile.
        size: "min", "opt", "max" or "given".
        shapes: Input name to its shape.
        graph: Whether it ran as a CUDA graph.
        copies: Whether inputs and outputs were copied from and to the host.
        runs: Number of single inferences.
        median_us: Of those, in microseconds; None, like the others, where it does not run in that way.
        p99_us: Their 99th percentile.
        min_us: The fastest.
        throughput_per_s: Of many in a row.
    """

    engine: int
    profile: int
    size: str
    shapes: Mapping[str, Shape]
    graph: bool
    copies: bool
    runs: int = 0
    median_us: float | None = None
    p99_us: float | None = None
    min_us: float | None = None
    throughput_per_s: float | None = None


@frozen
class BenchRatio(Document):
    """The first engine's time over the other's, at one size and way to run; fields as in `BenchRow`."""

    profile: int
    size: str
    shapes: Mapping[str, Shape]
    graph: bool
    copies: bool
    ratio: float


@frozen
class BenchReport(Document, keys="schema engines runtime rows ratios loads incomplete? seconds exit_code"):
    """What `trtconv bench` measured.

    Args:
        engines: One or two; with `--beside` as many as there are.
        runtime: What ran them.
        rows: One a size, an engine, and a way to run it; none under load.
        ratios: With two engines, for each size and way to run the first's time over the other's.
        seconds: Wall time by stage.
        incomplete: Why not all was timed; empty where it was.
        loads: Under load, one a size and an engine.
    """

    engines: tuple[BenchEngine, ...]
    rows: tuple[BenchRow, ...]
    runtime: GpuRuntime = GpuRuntime("", "")
    ratios: tuple[BenchRatio, ...] = ()
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    incomplete: str = ""
    loads: tuple[BenchLoad, ...] = ()

    @property
    def exit_code(self) -> int:
        """4 where not all was timed, else 0."""
        return 4 if self.incomplete or not (self.rows or self.loads) else 0
