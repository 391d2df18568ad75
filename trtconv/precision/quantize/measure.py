"""How far a quantised network is from the float one, as a whole and layer by layer; or what a metric says of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.documents.metric_result import MetricResult
from trtconv.core.documents.quantize import Distance
from trtconv.graph.arrays import Feeds
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.metrics import Goal
from trtconv.precision.quantize.sessions import Probe

_KEPT_BYTES = 1 << 26
"""Of inner tensors, before the other network is loaded."""


class _Squares:
    """Sums over all samples, in float64; differences and expected values by sample too."""

    def __init__(self) -> None:
        self._got = self._product = 0.0
        self._pairs: list[tuple[float, float]] = []
        self._discrete = False

    def add(self, expected: NDArray[Any], got: NDArray[Any]) -> None:
        if expected.size != got.size:
            # As many as a NonZero finds, for one, depends on the values.
            self._pairs.append((math.inf, 0.0))
            return
        expected, got = expected.reshape(-1), got.reshape(-1)
        if expected.dtype.kind != "f":
            self._discrete = True
            expected, got = np.ones(expected.shape), np.asarray(expected == got, dtype=np.float64)
        a, b = expected.astype(np.float64), got.astype(np.float64)
        self._pairs.append((float(np.square(a - b).sum()), float(np.square(a).sum())))
        self._got += float(np.square(b).sum())
        self._product += float((a * b).sum())

    def distance(self) -> Distance:
        difference, expected = (sum(column) for column in zip(*self._pairs, strict=True)) if self._pairs else (0.0, 0.0)
        if not expected:
            return Distance(0.0, 1.0) if not difference else Distance(math.inf, 0.0)
        ratio = difference / expected
        length = math.sqrt(expected * self._got)
        cosine = self._product / length if length else 0.0
        rms = ratio if self._discrete else math.sqrt(ratio)
        return Distance(rms, cosine, self._standard_error(ratio, expected, rms))

    def _standard_error(self, ratio: float, expected: float, rms: float) -> float | None:
        """Returns that of the result, by how the samples differ; None where they cannot tell.

        Source: the variance of a ratio estimator (Cochran, Sampling Techniques, 6.13); of a root the half, over it.
        """
        count = len(self._pairs)
        if count < 2 or not math.isfinite(ratio):
            return None
        residues = sum((difference - ratio * own) ** 2 for difference, own in self._pairs)
        error = math.sqrt(count / (count - 1) * residues) / expected
        return error if self._discrete or not rms else error / (2 * rms)


class Reference:
    """Values of the float network for some samples.

    Its outputs are kept, so that many quantised networks can be held to them; samples are made again each time.

    Args:
        model: The float model.
        samples: Inputs.
        goal: What counts in `error`; None for the root mean square.
    """

    def __init__(self, model: OnnxModel, samples: Sequence[Feeds], goal: Goal | None = None) -> None:
        self._model = model
        self._goal = goal
        self.samples = samples
        probe = Probe(model, model.outputs)
        self._expected = [probe.run(feeds) for feeds in self.samples]
        self._own = 0.0 if goal is None else goal.own(self._expected)

    def distances(self, other: OnnxModel) -> dict[str, Distance]:
        """Returns output to how far another network's is from the float one."""
        return self.distances_of(self._results(other))

    def distances_of(self, results: Iterable[Feeds]) -> dict[str, Distance]:
        """Returns output to how far values for all samples, in their order, are from the float network's."""
        sums = {name: _Squares() for name in self._model.outputs}
        for expected, actual in zip(self._expected, results, strict=True):
            _add(sums, expected, actual)
        return {name: squares.distance() for name, squares in sums.items()}

    def error(self, other: OnnxModel) -> float:
        """Returns the largest rms of the outputs of another network; with a goal what its metric loses."""
        return self.error_of(self._results(other))

    def error_of(self, results: Iterable[Feeds]) -> float:
        """Returns the same of values for all samples, in their order."""
        judged = self.judged_of(results) if self._goal is not None else None
        return worst(self.distances_of(results)) if judged is None else judged.loss

    def rank(self, other: OnnxModel) -> tuple[float, float]:
        """Returns the `error` of another network, then its rms, which parts those that a metric holds for equal."""
        if self._goal is None:
            return (self.error(other),) * 2
        results = list(self._results(other))
        return self.error_of(results), worst(self.distances_of(results))

    def judged(self, other: OnnxModel) -> MetricResult | None:
        """Returns what the metric says of another network; None without a goal, or samples."""
        return self.judged_of(self._results(other))

    def judged_of(self, results: Iterable[Feeds]) -> MetricResult | None:
        """Returns the same of values for all samples, in their order."""
        if self._goal is None or not self._expected:
            return None
        return self._goal.judged(zip(results, self._expected, strict=True), self._own)

    def allowed(self, limit: float) -> float:
        """Returns the largest `error` that a limit allows: the limit, or the loss of a metric that has that value."""
        return limit if self._goal is None else self._goal.allowed(limit, self._own)

    def _results(self, other: OnnxModel) -> Iterator[Feeds]:
        probe = Probe(other, other.outputs)
        return (probe.run(feeds) for feeds in self.samples)

    def inside(self, other: OnnxModel, tensors: Sequence[str]) -> dict[str, Distance]:
        """Returns inner tensor to how far another network's is from the float one."""
        sums = {name: _Squares() for name in tensors}
        count = 0
        while count < len(self.samples):
            expected = self._some(tensors, count)
            # Only now: of the two networks, which may be large, one is loaded at a time.
            probe = Probe(other, tensors)
            for number, values in enumerate(expected, start=count):
                _add(sums, values, probe.run(self.samples[number]))
            count += len(expected)
        return {name: squares.distance() for name, squares in sums.items()}

    def _some(self, tensors: Sequence[str], begin: int) -> list[Feeds]:
        """Returns inner tensors for some samples from one on: at least one, and as many as may be kept."""
        probe = Probe(self._model, tensors)
        results: list[Feeds] = []
        size = 0
        while begin + len(results) < len(self.samples) and (not results or size < _KEPT_BYTES):
            results.append(probe.run(self.samples[begin + len(results)]))
            size += sum(values.nbytes for values in results[-1].values())
        return results


def worst(distances: Mapping[str, Distance]) -> float:
    """Returns the largest rms; infinite where one is no number."""
    return max((math.inf if math.isnan(distance.rms) else distance.rms for distance in distances.values()), default=0.0)


def _add(sums: Mapping[str, _Squares], expected: Mapping[str, NDArray[Any]], got: Mapping[str, NDArray[Any]]) -> None:
    for name, squares in sums.items():
        squares.add(expected[name], got[name])
