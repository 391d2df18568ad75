"""Which values the tensors of a network take, and which of them a quantiser should represent.

The divergence of "entropy" is computed by ONNX Runtime. A sample is run and forgotten before the next one is made, so
memory stays flat however many there are.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.errors import InputError
from trtconv.graph.arrays import Feeds
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.histogram import Histogram
from trtconv.precision.quantize.sessions import Probe

METHODS = ("min-max", "percentile", "mse", "entropy")
"""How a range is taken: all values; all but the rarest; where the squared error is smallest; where the least
information is lost (Kullback-Leibler divergence)."""
_PERCENTILES = (99.99, 99.999)
"""Those that are tried where the method is left open."""
_ENTROPY_BINS = 512
_QUANTIZED_BINS = 128
_LEVELS = 127
_CANDIDATES = np.linspace(0.2, 1.0, 81)
"""Parts of the largest value that "mse" tries."""

Tell = Callable[[int, int], None]


def candidates(method: str, percentile: float, among: Sequence[str] = METHODS) -> tuple[str, ...]:
    """Returns the methods to compare, percentiles with their number: "percentile 99.99".

    Args:
        method: One of `METHODS`, or "auto" for all.
        percentile: Share of the values, in percent, for "percentile".
        among: The methods that are compared.
    """
    if method == "percentile":
        return (f"percentile {percentile:g}",)
    several = ("min-max", *(f"percentile {share:g}" for share in _PERCENTILES), "mse", "entropy")
    compared = tuple(name for name in several if name.partition(" ")[0] in among)
    return compared if method == "auto" else (method,)


class Statistics:
    """What the tensors of a network held, over all samples so far; their size does not depend on the samples.

    Args:
        methods: Those of `candidates` that will be asked for.
    """

    def __init__(self, methods: Sequence[str]) -> None:
        self._largest: dict[str, float] = {}
        self._histograms: dict[str, Histogram] = {}
        self._counts = any(method != "min-max" for method in methods)

    def add(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Takes in the tensors of one sample.

        Raises:
            InputError: A tensor is not finite.
        """
        for name, array in values.items():
            largest = float(max(array.max(initial=0.0), -array.min(initial=0.0)))
            if not np.isfinite(largest):
                raise InputError(
                    f"tensor {name!r} is not finite for one of the samples", "Leave that sample out: it has no range."
                )
            self._largest[name] = max(self._largest.get(name, 0.0), largest)
            if self._counts:
                self._histograms.setdefault(name, Histogram()).add(array)

    def ranges(self, method: str) -> dict[str, float]:
        """Returns tensor to the largest magnitude that its quantiser should represent.

        Args:
            method: One of those that were announced.
        """
        if method == "min-max":
            return dict(self._largest)
        return {name: min(self._range(name, method), largest) for name, largest in self._largest.items()}

    def _range(self, name: str, method: str) -> float:
        largest, histogram = self._largest[name], self._histograms[name]
        # Of a tensor that is 0 throughout there is no histogram.
        if largest == 0:
            return 0.0
        if method == "entropy":
            return _least_divergence(histogram, largest)
        if method == "mse":
            return least_squares(histogram.counts, histogram.edges)
        return histogram.percentile(float(method.partition(" ")[2]))


def _least_divergence(histogram: Histogram, largest: float) -> float:
    """Returns the range at which the least information is lost, as ONNX Runtime finds it."""
    from onnxruntime.quantization.calibrate import HistogramCollector

    half = histogram.even(_ENTROPY_BINS // 2, largest)
    edges = np.linspace(-largest, largest, _ENTROPY_BINS + 1, dtype=np.float32)
    ends = np.float32(-largest), np.float32(largest)
    # Its percentile is for another method.
    collector = HistogramCollector("entropy", True, _ENTROPY_BINS, _QUANTIZED_BINS, math.nan, "same")
    collector.histogram_dict = {"": (np.concatenate([half[::-1], half]), edges, *ends, ends[1])}
    # It reports on stdout.
    with contextlib.redirect_stdout(io.StringIO()):
        low, high, *_ = collector.compute_entropy()[""]
    return float(max(abs(low), abs(high)))


def least_squares(counts: NDArray[Any], edges: NDArray[Any]) -> float:
    """Returns the range at which the squared error of symmetric int8 is smallest.

    Args:
        counts: How many magnitudes lie in each bin.
        edges: The ends of the bins, one more than there are bins.
    """
    middle = (edges[:-1].astype(np.float64) + edges[1:].astype(np.float64)) / 2
    limits = edges[-1] * _CANDIDATES
    errors = []
    for largest in limits:
        scale = largest / _LEVELS
        rounded = np.clip(np.rint(middle / scale), 0, _LEVELS) * scale
        errors.append(float((counts * (middle - rounded) ** 2).sum()))
    return float(limits[int(np.argmin(errors))])


def calibrate(
    model: OnnxModel, tensors: Sequence[str], samples: Sequence[Feeds], statistics: Statistics, tell: Tell
) -> None:
    """Runs samples and takes in what the tensors hold.

    Args:
        model: The float model.
        tensors: Whose values are asked for.
        samples: Inputs, made one at a time.
        statistics: Where the values go.
        tell: Hears how many samples are done, of how many.

    Raises:
        InputError: The model does not run on a sample.
    """
    probe = Probe(model, tensors)
    for count, feeds in enumerate(samples, start=1):
        statistics.add(probe.run(feeds))
        tell(count, len(samples))
