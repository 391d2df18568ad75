"""Which values the tensors of a network take, and which of them a quantiser should represent.

The histograms and their evaluation for "percentile" and "entropy" are ONNX Runtime's. A sample is run and forgotten
before the next one is made, so memory stays flat however many there are.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.sessions import Probe

METHODS = ("min-max", "percentile", "mse", "entropy")
"""How a range is taken: all values; all but the rarest; where the squared error is smallest; where the least
information is lost (Kullback-Leibler divergence)."""
PERCENTILE = 99.99
_PERCENTILES = (99.99, 99.999)
"""Those that are tried where the method is left open."""
_BINS = 2048
_ENTROPY_BINS = 512
_QUANTIZED_BINS = 128
_LEVELS = 127
_CANDIDATES = np.linspace(0.2, 1.0, 81)
"""Parts of the largest value that "mse" tries."""

Feeds = Mapping[str, NDArray[Any]]
Tell = Callable[[int, int], None]


def candidates(method: str, percentile: float) -> tuple[str, ...]:
    """Returns the methods to compare, percentiles with their number: "percentile 99.99".

    Args:
        method: One of `METHODS`, or "auto" for all.
        percentile: Share of the values, in percent, for "percentile".
    """
    if method == "percentile":
        return (f"percentile {percentile:g}",)
    several = ("min-max", *(f"percentile {each:g}" for each in _PERCENTILES), "mse", "entropy")
    return several if method == "auto" else (method,)


class Statistics:
    """What the tensors of a network held, over all samples so far.

    Args:
        methods: Those of `candidates` that will be asked for.
    """

    def __init__(self, methods: Sequence[str]) -> None:
        self._largest: dict[str, float] = {}
        magnitudes = any(method == "mse" or method.startswith("percentile") for method in methods)
        self._wide: Any = self._collector("percentile") if magnitudes else None
        self._narrow: Any = self._collector("entropy") if "entropy" in methods else None

    def _collector(self, method: str) -> Any:
        from onnxruntime.quantization.calibrate import HistogramCollector

        bins = _ENTROPY_BINS if method == "entropy" else _BINS
        return HistogramCollector(method, True, bins, _QUANTIZED_BINS, PERCENTILE, "same")

    def add(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Takes in the tensors of one sample.

        Raises:
            InputError: A tensor is not finite.
        """
        for name, array in values.items():
            largest = float(np.abs(array).max(initial=0.0))
            if not np.isfinite(largest):
                raise InputError(
                    f"tensor {name!r} is not finite for one of the samples", "Leave that sample out: it has no range."
                )
            self._largest[name] = max(self._largest.get(name, 0.0), largest)
        # Of a tensor that is 0 throughout there is no histogram.
        telling = {name: array for name, array in values.items() if self._largest[name] > 0}
        if self._wide is not None:
            self._wide.collect_absolute_value(telling)
        if self._narrow is not None:
            self._narrow.collect_value(telling)

    def ranges(self, method: str) -> dict[str, float]:
        """Returns tensor to the largest magnitude that its quantiser should represent.

        Args:
            method: One of those that were announced.
        """
        found = dict(self._largest)
        if method.startswith("percentile"):
            self._wide.percentile = float(method.partition(" ")[2])
            found |= _thresholds(self._wide.compute_percentile)
        elif method == "entropy":
            bins = self._narrow.histogram_dict
            bins.update({name: _coarser(*each) for name, each in bins.items()})
            found |= _thresholds(self._narrow.compute_entropy)
        elif method == "mse":
            histograms = self._wide.get_histogram_dict()
            found |= {name: least_squares(each[0], each[1]) for name, each in histograms.items()}
        return found


def _coarser(counts: NDArray[Any], edges: NDArray[Any], low: Any, high: Any, reach: Any) -> tuple[Any, ...]:
    """Joins bins of a histogram around 0 that has grown: entropy takes the square of their number, and more."""
    half = len(counts) // 2
    step = -(-half // (_ENTROPY_BINS // 2))
    if step <= 1:
        return counts, edges, low, high, reach
    more = -half % step
    joined = np.pad(counts, more).reshape(-1, step).sum(axis=1)
    reach = reach * (half + more) / half
    return joined, np.linspace(-reach, reach, len(joined) + 1, dtype=edges.dtype), low, high, reach


def _thresholds(compute: Callable[[], Mapping[str, Any]]) -> dict[str, float]:
    # It reports on stdout.
    with contextlib.redirect_stdout(io.StringIO()):
        computed = compute()
    return {name: float(max(abs(each[0]), abs(each[1]))) for name, each in computed.items()}


def least_squares(counts: NDArray[Any], edges: NDArray[Any]) -> float:
    """Returns the range at which the squared error of symmetric int8 is smallest.

    Args:
        counts: How many magnitudes lie in each bin.
        edges: The ends of the bins, one more than there are bins.
    """
    middle = (edges[:-1].astype(np.float64) + edges[1:].astype(np.float64)) / 2
    tried = edges[-1] * _CANDIDATES
    errors = []
    for largest in tried:
        scale = largest / _LEVELS
        rounded = np.clip(np.rint(middle / scale), 0, _LEVELS) * scale
        errors.append(float((counts * (middle - rounded) ** 2).sum()))
    return float(tried[int(np.argmin(errors))])


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
