"""How far two arrays are apart, and how far they may be."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.dims import times
from trtconv.core.documents.verify import Difference, Tolerance, Verdict

_CHUNK = 1 << 17
"""Elements that are compared at a time: few enough for the processor's cache, in float64."""


SHARE_STEP = 1e-6
"""How far a share of 1 (of Sigmoid, Tanh, Softmax) may be off: it is computed of numbers around 1, however small it is
itself."""
_ROUNDED = 1 + 1e-3
"""A step of float32 may come out a little larger."""


TOLERANCES = {
    "float32": Tolerance(1e-4, 0.99999),
    "tf32": Tolerance(2e-2, 0.999),
    "fp16": Tolerance(2e-2, 0.999),
    "bf16": Tolerance(1e-1, 0.99),
    "int8": Tolerance(5e-2, 0.999),
    "requantized": Tolerance(1e-1, 0.99),
    "quantized": Tolerance(2e-1, 0.99),
}
"""What a network may lose by computing in a type; `relative` also where it only adds in another order.

"requantized" is for a quantised network whose weights a pass quantised anew, against the file; "quantized" for one
against the float network that it was made of.

tf32 is what TensorRT makes of float32 unless it is told not to. It has as many bits in a product's factors as fp16: a
U-Net of 20 layers was off by 6e-3 in tf32 and by 4e-3 in fp16 on an H100.
"""
_DOUBLE = 1e-9
_OF_TYPES = {
    "double": _DOUBLE,
    "float64": _DOUBLE,
    "float": TOLERANCES["float32"].relative,
    "float32": TOLERANCES["float32"].relative,
    "float16": TOLERANCES["fp16"].relative,
    "bfloat16": TOLERANCES["bf16"].relative,
}


def same_network(types: Iterable[str], quantized: bool) -> float:
    """Returns the relative error up to which two networks are the same, sums in another order.

    Args:
        types: Of the network's weights and inputs, as ONNX or NumPy name them; the coarsest counts.
        quantized: Whether it rounds values to steps: one on the border between two may fall to either side, and steps
            add up through a network.
    """
    coarsest = max((_OF_TYPES[dtype] for dtype in types if dtype in _OF_TYPES), default=_OF_TYPES["float32"])
    return max(coarsest, TOLERANCES["int8"].relative) if quantized else coarsest


def compare(name: str, expected: Any, got: Any, tolerance: Tolerance, step: float = 0.0) -> Difference:
    """Compares an output with its reference.

    Args:
        name: The output.
        expected: What it should be.
        got: What it is; may be of a narrower or wider type of the same kind.
        tolerance: How far it may be.
        step: By how much values that a quantiser makes may be off besides: one on the border between two of its steps
            falls to either side.
    """
    if got is None:
        missing = Difference(name, str(getattr(expected, "dtype", "")), np.shape(expected))
        return dataclasses.replace(missing, verdict=Verdict.MISSING, why="there is no such output")
    if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "fiubV":
        blank = Difference(name, type(expected).__name__, np.shape(expected))
        same = np.array_equal(expected, got)
        return blank if same else dataclasses.replace(blank, verdict=Verdict.VALUES, why="the values differ")
    blank = Difference(name, str(expected.dtype), expected.shape)
    if not isinstance(got, np.ndarray) or got.shape != expected.shape:
        why = f"its shape is {times(np.shape(got))} instead of {times(expected.shape)}"
        return dataclasses.replace(blank, verdict=Verdict.SHAPE, why=why)
    if expected.size == 0:
        return dataclasses.replace(blank, max_abs=0.0, max_rel=0.0, cosine=1.0, psnr=math.inf, mismatches=0.0)
    return _judge(blank, _Sums.of(expected, got, tolerance.relative, step), tolerance)


def relative_error(expected: Any, got: Any, step: float = 0.0) -> float:
    """Returns the largest difference over the largest magnitude of `expected`; infinite where shapes or types differ.

    It is infinite too where the two are not the same NaN and infinities, or values that are no numbers differ.

    Args:
        expected: What an output should be.
        got: What it is.
        step: What is no difference: that of its quantiser, since a value on the border falls to either side.
    """
    if not isinstance(expected, np.ndarray):
        return 0.0 if expected == got else math.inf
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return math.inf
    if expected.dtype.kind not in "fiub" or expected.size == 0:
        return 0.0 if np.array_equal(expected, got) else math.inf
    peak, gap = _extremes(expected, got)
    if math.isfinite(peak) and math.isfinite(gap):
        return _ratio(0.0 if gap <= step * _ROUNDED else gap, peak)
    sums = _Sums.of(expected, got, 0.0, 0.0)
    if sums.max_abs <= step * _ROUNDED:
        sums.max_abs = 0.0
    return math.inf if sums.broken or sums.nonfinite != sums.same_nonfinite else sums.max_rel


@dataclasses.dataclass
class _Sums:
    """What is added up over the chunks of two arrays."""

    size: int
    peak: float
    nonfinite: int = 0
    same_nonfinite: int = 0
    broken: int = 0
    beyond: int = 0
    max_abs: float = 0.0
    squares: float = 0.0
    dot: float = 0.0
    norms: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(cls, expected: NDArray[Any], got: NDArray[Any], relative: float, step: float) -> _Sums:
        sums = cls(expected.size, max(_peak(a) for a, _ in _chunks(expected, expected)))
        exact = expected.dtype.kind in "iub"
        for a, b in _chunks(expected, got):
            sums.add(a, b, 0.0 if exact else relative * sums.peak + step)
        return sums

    def add(self, a: NDArray[np.float64], b: NDArray[np.float64], allowed: float) -> None:
        finite = np.isfinite(a)
        both = finite & np.isfinite(b)
        if not both.all():
            self.nonfinite += int(np.count_nonzero(~finite))
            self.same_nonfinite += int(np.count_nonzero(~finite & ((a == b) | (np.isnan(a) & np.isnan(b)))))
            self.broken += int(np.count_nonzero(finite & ~both))
            a, b = a[both], b[both]
        if not a.size:
            return
        gap = np.abs(a - b)
        self.max_abs = max(self.max_abs, float(gap.max()))
        self.beyond += int(np.count_nonzero(gap > allowed))
        self.squares += _dot(gap, gap)
        self.dot += _dot(a, b)
        self.norms = (self.norms[0] + _dot(a, a), self.norms[1] + _dot(b, b))

    @property
    def max_rel(self) -> float:
        return _ratio(self.max_abs, self.peak)

    @property
    def cosine(self) -> float:
        product = math.sqrt(self.norms[0]) * math.sqrt(self.norms[1])
        return self.dot / product if product else (1.0 if self.norms == (0.0, 0.0) else 0.0)

    @property
    def psnr(self) -> float:
        mean = self.squares / max(1, self.size - self.nonfinite - self.broken)
        if not mean:
            return math.inf
        return 10 * math.log10(self.peak**2 / mean) if self.peak else -math.inf


def _judge(blank: Difference, sums: _Sums, tolerance: Tolerance) -> Difference:
    wrong = sums.beyond + sums.broken + sums.nonfinite - sums.same_nonfinite
    share = wrong / sums.size
    verdict, why = Verdict.PASSED, ""
    if sums.nonfinite == sums.size:
        verdict = Verdict.REFERENCE_NOT_FINITE
        why = "the model itself returns nothing but NaN and infinities, which shows nothing"
    elif sums.broken:
        verdict = Verdict.NOT_FINITE
        why = f"{sums.broken} of {sums.size} elements are NaN or infinite, and finite in the model"
    elif share > tolerance.mismatches:
        verdict = Verdict.BEYOND
        some = f"{wrong} of {sums.size} elements ({100 * share:.2g}%)"
        why = f"{some} are further off than {tolerance.relative:g} of the largest magnitude"
    elif sums.cosine < tolerance.cosine:
        verdict = Verdict.BEYOND
        why = f"the cosine similarity {sums.cosine:.6f} is below {tolerance.cosine:g}"
    return dataclasses.replace(
        blank,
        max_abs=sums.max_abs,
        max_rel=sums.max_rel,
        cosine=sums.cosine,
        psnr=sums.psnr,
        mismatches=share,
        verdict=verdict,
        why=why,
    )


def _ratio(gap: float, peak: float) -> float:
    """Returns a difference over the largest magnitude."""
    if peak:
        return gap / peak
    return math.inf if gap else 0.0


def _extremes(expected: NDArray[Any], got: NDArray[Any]) -> tuple[float, float]:
    """Returns the largest magnitude and the largest difference; NaN or infinite where a value is."""
    peaks, gaps = [], []
    with np.errstate(invalid="ignore", over="ignore"):
        for a, b in _chunks(expected, got):
            b -= a
            peaks.append(max(-a.min(), a.max()))
            gaps.append(max(-b.min(), b.max()))
    # Python's own max may pass over a NaN.
    return float(np.max(peaks)), float(np.max(gaps))


def _peak(values: NDArray[np.float64]) -> float:
    peak = float(np.abs(values).max(initial=0.0))
    return peak if math.isfinite(peak) else float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _chunks(one: NDArray[Any], two: NDArray[Any]) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    one, two = one.reshape(-1), two.reshape(-1)
    for start in range(0, one.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        yield one[part].astype(np.float64), two[part].astype(np.float64)


def _dot(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    # Not one @ two: BLAS would start threads for it, which cost more than they bring.
    return float(np.einsum("i,i->", one, two))
