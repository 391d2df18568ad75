"""What an inference takes at a size, in a profile for it or another: estimated, or as bench measured it."""

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
from trtconv.core.frozen import frozen
from trtconv.core.reading import DOCUMENT_BYTES, read_plain
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.planning.choosing import surcharge
from trtconv.shapes.planning.work import work

_HINT = "Write it with: trtconv bench ENGINE --format json > BENCH.json."
_AT_OPT = ("opt", "given")
_EXTRA = 1.4
"""What surcharges are multiplied with beside `_Curve.idle`, of the profiles in bench/results/gpu-profiles-*.json. They
are then off by 5.6 % (root of the mean square); without looking at how full the GPU is, by 12.8 %."""

Point = Mapping[str, int]
Amounts = NDArray[np.float64]


@frozen
class Measurement:
    """What an inference takes at some sizes.

    Args:
        point: The sizes.
        us: Microseconds.
        opt: What the profile that it ran in is optimized for; None: these sizes.
    """

    point: Point
    us: float
    opt: Point | None = None


class Timing:
    """Times of inferences.

    Args:
        sizes: The network.
        measured: What is known; without a time at an opt, times are estimates, in no unit.
    """

    def __init__(self, sizes: Sizes, measured: Sequence[Measurement] = ()) -> None:
        self._sizes = sizes
        at_opt = [measurement for measurement in measured if measurement.opt is None]
        self.unit = "us" if at_opt else "estimate"
        self._curve: _Curve | None = None
        self._extra = 1.0
        if at_opt:
            self._curve = _Curve(self._work_of(at_opt), np.array([measurement.us for measurement in at_opt]))
            self._extra = self._fitted(
                self._curve, [measurement for measurement in measured if measurement.opt is not None]
            )

    def work(self, points: Sequence[Point]) -> Amounts:
        """Returns the work at some sizes."""
        return work(self._sizes, points)

    def times(self, amounts: Amounts) -> Amounts:
        """Returns what some work takes where it is the opt."""
        return amounts if self._curve is None else self._curve.times(amounts)

    def away(self, amounts: Amounts, opts: Amounts) -> Amounts:
        """Returns what work takes in profiles that are optimized for other work: a row each, a column an opt."""
        idle = np.ones(len(amounts)) if self._curve is None else self._curve.idle(amounts)
        shares = self._extra * idle[:, None] * surcharge(amounts, opts)
        return np.asarray(self.times(amounts)[:, None] * (1 + shares))

    def _work_of(self, measured: Sequence[Measurement]) -> Amounts:
        return self.work([measurement.point for measurement in measured])

    def _fitted(self, curve: _Curve, measured: Sequence[Measurement]) -> float:
        """Returns the factor with which surcharges come nearest to what was measured away from opts."""
        if not measured:
            return _EXTRA
        amounts, opts = (
            self._work_of(measured),
            self.work([measurement.opt or measurement.point for measurement in measured]),
        )
        expected = curve.idle(amounts) * np.diag(surcharge(amounts, opts))
        # Beyond the opts nothing tells what a size takes at best.
        expected = np.where((amounts >= curve.least) & (amounts <= curve.most), expected, 0)
        extra = np.array([measurement.us for measurement in measured]) / curve.times(amounts) - 1
        square = float(np.dot(expected, expected))
        return max(0.0, float(np.dot(extra, expected)) / square) if square else _EXTRA


class _Curve:
    """Time by work, between measured amounts by its powers, beyond in proportion.

    Args:
        amounts: Work.
        us: Microseconds, of each; of one amount several times, the median counts.
    """

    def __init__(self, amounts: Amounts, us: Amounts) -> None:
        levels = np.unique(amounts)
        self.least, self.most = float(levels[0]), float(levels[-1])
        medians = [float(np.median(us[amounts == level])) for level in levels]
        # More work never takes less.
        self._at, self._us = np.log(levels), np.log(np.maximum.accumulate(medians))
        self._slopes = np.gradient(self._us, self._at) if len(levels) > 1 else np.zeros(1)

    def times(self, amounts: Amounts) -> Amounts:
        """Returns what some work takes."""
        at = np.log(amounts)
        return np.asarray(np.exp(np.interp(at, self._at, self._us) + np.maximum(at - self._at[-1], 0)))

    def idle(self, amounts: Amounts) -> Amounts:
        """Returns how far the GPU is from full: 0 where time grows as work does, 1 where it does not grow.

        A kernel for other sizes costs time only where the GPU has too little to do.
        """
        slopes = np.interp(np.log(amounts), self._at, self._slopes)
        return np.asarray(np.clip(1 - slopes, 0, 1))


def measurements(paths: Sequence[Path], inputs: Sequence[InputSpec], names: Sequence[str]) -> list[Measurement]:
    """Reads what bench measured of its first engine, as CUDA graphs where there are such, without copies.

    Args:
        paths: Its documents.
        inputs: The inputs of the model.
        names: Its free dimensions.

    Raises:
        InputError: A file cannot be read, is no such document, or is of another model.
    """
    results = []
    for path in paths:
        try:
            report = parsed(BenchReport, read_plain(path, DOCUMENT_BYTES))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}", _HINT) from error
        except Fault as fault:
            raise InputError(f"{path} is not what bench writes: {fault}", _HINT) from fault
        rows = [row for row in report.rows if row.engine == 0 and not row.copies and _is_time(row.median_us)]
        graphs = any(row.graph for row in rows if row.size in _AT_OPT)
        rows = [row for row in rows if row.graph is graphs]
        opts = {row.profile: _point(path, row.shapes, inputs, names) for row in rows if row.size == "opt"}
        at_opt = [row for row in rows if row.size in _AT_OPT]
        if not at_opt:
            raise InputError(f"{path} has no times at opt", _HINT)
        for row in rows:
            opt = None if row in at_opt else opts.get(row.profile)
            if row.median_us and (row in at_opt or opt is not None):
                results.append(Measurement(_point(path, row.shapes, inputs, names), row.median_us, opt))
    return results


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
