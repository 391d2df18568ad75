"""What counts of a network's outputs: measures that are built in, and a function of the user's.

A metric makes one number of a sample's outputs and of those of the float network. Of built-in ones larger is better;
of a function it is not asked: the float network held against itself has the best value, and the limit that the user
gives lies on the worse side of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.documents.metric_result import MetricResult
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.reading import sha256_of
from trtconv.core.samples import function_of
from trtconv.core.suggest import did_you_mean
from trtconv.runtimes.inputs import load_function
from trtconv.runtimes.onnxruntime import first_line

Outputs = Mapping[str, NDArray[Any]]
Pair = tuple[Outputs, Outputs]
"""A sample's outputs, and those of the float network."""

_ROUNDING = 1e-6
"""By how much a limit may be above the float network's value, which the cosine of equal vectors may be short of 1."""
_MOST_DECIBELS = 100.0
"""Of equal pictures, whose ratio is infinite: one such sample must not hide the others in the mean."""
_SAME = np.ones(1)
_CALLED = "It is called as FUNC(outputs, reference), both {output: array} of one sample, and returns a number."


def psnr(got: NDArray[Any], reference: NDArray[Any]) -> float:
    """Returns the ratio of the reference's range to the error, in dB, at most 100."""
    a, b = reference.astype(np.float64), got.astype(np.float64)
    squared, peak = float(np.square(a - b).mean()), float(np.ptp(a)) or 1.0
    return min(_MOST_DECIBELS, 10 * math.log10(peak**2 / squared)) if squared else _MOST_DECIBELS


def iou(got: NDArray[Any], reference: NDArray[Any]) -> float:
    """Returns intersection over union, the mean over the classes that either has; see `_labels`."""
    a, b = _labels(reference, reference), _labels(got, reference)
    kinds = np.union1d(a, b)
    shares = [float(((a == kind) & (b == kind)).sum() / ((a == kind) | (b == kind)).sum()) for kind in kinds]
    return float(np.mean(shares))


def top1(got: NDArray[Any], reference: NDArray[Any]) -> float:
    """Returns the share of places with the same class; see `_labels`."""
    return float((_labels(reference, reference) == _labels(got, reference)).mean())


def cosine(got: NDArray[Any], reference: NDArray[Any]) -> float:
    """Returns the cosine similarity; 1 if both are the same, also if that is 0 throughout."""
    a, b = reference.astype(np.float64).ravel(), got.astype(np.float64).ravel()
    # A quotient of rounded numbers may be off by a bit, and no value be as good as the float network's own.
    if np.array_equal(a, b):
        return 1.0
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return min(1.0, float(a @ b) / lengths) if lengths else 0.0


def _labels(values: NDArray[Any], reference: NDArray[Any]) -> NDArray[Any]:
    """Returns the class at each place.

    Integers and booleans are classes. Of floats the largest channel is: the last axis of up to three, as of (batch,
    tokens, classes), and axis 1 of more, as of images. Of a single channel the class is whether the value is above
    one half where the reference's are shares (0 to 1), else above 0.
    """
    if values.dtype.kind != "f":
        return values
    axis = 1 if values.ndim > 3 else -1
    if values.ndim and values.shape[axis] > 1:
        return np.asarray(values.argmax(axis))
    shares = bool(reference.min(initial=0.0) >= 0 and reference.max(initial=0.0) <= 1)
    return np.asarray(values > (0.5 if shares else 0.0))


BUILT_IN: Mapping[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {
    "psnr": psnr,
    "iou": iou,
    "top1": top1,
    "cosine": cosine,
}
"""Name to what it makes of one output and of the float network's; of several outputs the worst counts."""


class Metric:
    """A number for a sample's outputs beside those of the float network.

    Args:
        text: A name of `BUILT_IN`, or FILE.py:FUNC, whose code is run.

    Attributes:
        name: The text.
        sha256: Of the file; empty where it is built in.

    Raises:
        InputError: It is neither, or cannot be imported.
    """

    def __init__(self, text: str) -> None:
        self.name = text
        self.sha256 = ""
        self._built_in = BUILT_IN.get(text)
        if self._built_in is not None:
            return
        function = function_of(text)
        if function is None:
            raise InputError(
                f"--metric {text!r} is neither {', '.join(BUILT_IN)} nor FILE.py:FUNC",
                did_you_mean(text, tuple(BUILT_IN), f"Write --metric psnr, or --metric measures.py:recall. {_CALLED}"),
            )
        self.sha256 = sha256_of(function[0]) if function[0].is_file() else ""
        self._function = load_function(text, "--metric", "(outputs, reference)")

    @property
    def is_built_in(self) -> bool:
        """Whether it is one of `BUILT_IN`, of which larger values are better."""
        return self._built_in is not None

    def of(self, outputs: Outputs, reference: Outputs) -> float:
        """Returns the value for one sample.

        Raises:
            InputError: The user's function fails, or returns no finite number.
        """
        if self._built_in is not None:
            return self._worst(self._built_in, outputs, reference)
        # Copies: what it writes into them must not reach the next comparison.
        copies = [{name: array.copy() for name, array in arrays.items()} for arrays in (outputs, reference)]
        try:
            value = float(self._function(*copies))
        except (Exception, SystemExit) as error:
            raise InputError(
                f"--metric {self.name} failed: {type(error).__name__}: {first_line(error)}", _CALLED
            ) from error
        if not math.isfinite(value):
            raise InputError(
                f"--metric {self.name} returned {value} for a sample",
                "Return a finite number: give what has no limit one, as psnr does with 100 dB.",
            )
        return value

    def _worst(
        self, measure: Callable[[NDArray[Any], NDArray[Any]], float], outputs: Outputs, reference: Outputs
    ) -> float:
        """Returns the smallest value of all outputs; minus infinity where one cannot be compared or is not finite."""
        # Nothing is as good as nothing, and no better than equal outputs: it must not hide other samples in the mean.
        values = [measure(_SAME, _SAME)]
        for name, expected in reference.items():
            actual = outputs[name]
            fits = actual.shape == expected.shape and (actual.dtype.kind != "f" or bool(np.isfinite(actual).all()))
            if not fits or expected.size:
                values.append(measure(actual, expected) if fits else -math.inf)
        return min(values)


@frozen
class Goal:
    """A metric, and the value that is good enough.

    Args:
        metric: What counts.
        limit: The worst value that is allowed.
    """

    metric: Metric
    limit: float

    @property
    def identity(self) -> str:
        """What tells it from others, a function by its file's content."""
        return f"{self.metric.name} {self.metric.sha256} {self.limit!r}"

    def own(self, references: Sequence[Outputs]) -> float:
        """Returns the mean value of the float network, held against itself; 0 without samples.

        Raises:
            InputError: Its outputs are not finite, or the limit is better than it.
        """
        if not references:
            return 0.0
        own = float(np.mean([self.metric.of(outputs, outputs) for outputs in references]))
        if not math.isfinite(own):
            raise InputError(
                f"--metric {self.metric.name}: outputs of the float network on the samples are not finite, or empty",
                "Leave out the samples that it makes NaN or infinity of, or mend the model.",
            )
        self._require_reachable(self.limit, own)
        return own

    def _require_reachable(self, limit: float, own: float) -> None:
        """Raises InputError for a limit above what the float network has; only of a function may less be better."""
        if self.metric.is_built_in and limit > own + _ROUNDING:
            raise InputError(
                f"of --metric {self.metric.name} {limit:g} is asked for, and the float network itself has {own:g}",
                "Give a smaller value: psnr is in dB, and iou, top1 and cosine are at most 1 (0.95 for 95 %).",
            )

    def judged(self, pairs: Iterable[Pair], own: float) -> MetricResult:
        """Returns the mean value over samples, with its standard error.

        Args:
            pairs: Of each sample; at least one.
            own: What the float network has.
        """
        values = [self.metric.of(*pair) for pair in pairs]
        several = len(values) > 1 and all(map(math.isfinite, values))
        return MetricResult(
            metric=self.metric.name,
            value=float(np.mean(values)),
            standard_error=float(np.std(values, ddof=1)) / math.sqrt(len(values)) if several else None,
            of_float=own,
            limit=self.limit,
            samples=len(values),
        )

    def allowed(self, limit: float, own: float) -> float:
        """Returns how much worse than the float network's a value may be that has to reach another limit.

        Raises:
            InputError: That limit is on the other side of the float network's value.
        """
        self._require_reachable(limit, own)
        if (limit - own) * (self.limit - own) < 0:
            raise InputError(
                f"of --metric {self.metric.name} {limit:g} is better than the float network's {own:g}, or "
                f"{self.limit:g} is, whichever way is better",
                "Give limits on the worse side of what the float network has: --tolerance and --budget alike.",
            )
        return abs(own - limit)
