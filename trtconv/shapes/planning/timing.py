"""What an inference takes at a size, in a profile for that size: estimated from its work, or as bench measured it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trtconv.core.decode import Fault, parsed
from trtconv.core.dims import InputSpec, Shape, times
from trtconv.core.documents.bench import BenchReport
from trtconv.core.errors import InputError
from trtconv.core.reading import DOCUMENT_BYTES, read_plain
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.planning.work import work

_HINT = "Write it with: trtconv bench ENGINE --format json > BENCH.json."

Point = Mapping[str, int]
Amounts = NDArray[np.float64]


class Timing:
    """Times of inferences.

    Args:
        sizes: The network.
        measured: Points and microseconds; empty: times are estimates, in no unit.
    """

    def __init__(self, sizes: Sizes, measured: Sequence[tuple[Point, float]] = ()) -> None:
        self._sizes = sizes
        self.unit = "us" if measured else "estimate"
        self._known: tuple[Amounts, Amounts] | None = None
        if measured:
            amounts = work(sizes, [point for point, _ in measured])
            us = np.array([us for _, us in measured])
            levels = np.unique(amounts)
            # Several times of one size: their median. More work never takes less.
            medians = [float(np.median(us[amounts == level])) for level in levels]
            self._known = np.log(levels), np.log(np.maximum.accumulate(medians))

    def work(self, points: Sequence[Point]) -> Amounts:
        """Returns the work at some sizes."""
        return work(self._sizes, points)

    def times(self, amounts: Amounts) -> Amounts:
        """Returns what some work takes: between measured amounts by their powers, beyond in proportion."""
        if self._known is None:
            return amounts
        at, known = np.log(amounts), self._known
        beyond = np.maximum(at - known[0][-1], 0)
        return np.asarray(np.exp(np.interp(at, *known) + beyond))


def measured_times(
    paths: Sequence[Path], inputs: Sequence[InputSpec], names: Sequence[str]
) -> list[tuple[Point, float]]:
    """Reads what bench measured at opt, as CUDA graphs where there are such, without copies.

    Args:
        paths: Its documents.
        inputs: The inputs of the model.
        names: Its free dimensions.

    Raises:
        InputError: A file cannot be read, is no such document, or is of another model.
    """
    found = []
    for path in paths:
        try:
            report = parsed(BenchReport, read_plain(path, DOCUMENT_BYTES))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}", _HINT) from error
        except Fault as fault:
            raise InputError(f"{path} is not what bench writes: {fault}", _HINT) from fault
        rows = [
            row for row in report.rows if row.size in ("opt", "given") and not row.copies and _is_time(row.median_us)
        ]
        graphs = any(row.graph for row in rows)
        for row in rows:
            if row.graph is graphs and row.median_us:
                found.append((_point(path, row.shapes, inputs, names), row.median_us))
        if not rows:
            raise InputError(f"{path} has no times at opt", _HINT)
    return found


def _is_time(median: float | None) -> bool:
    return median is not None and 0 < median < math.inf


def _point(path: Path, shapes: Mapping[str, Shape], inputs: Sequence[InputSpec], names: Sequence[str]) -> Point:
    sizes: dict[str, int] = {}
    for spec in inputs:
        shape = shapes.get(spec.name, ())
        if len(shape) != len(spec.dims):
            raise InputError(
                f"{path} is of another model: its inputs are {', '.join(shapes)}", "Time an engine of this model."
            )
        pairs = list(zip(spec.dims, shape, strict=True))
        if any(size < 1 or (isinstance(dim, int) and dim != size) for dim, size in pairs):
            raise InputError(f"{path} has a time for {spec.name} {times(shape)}", "Time an engine of this model.")
        sizes |= {dim: size for dim, size in pairs if isinstance(dim, str)}
    if any(name not in sizes for name in names):
        raise InputError(f"{path} does not tell all sizes of the model", "Time an engine of this model.")
    return {name: sizes[name] for name in names}
