"""How far an element may be off: as far as rounding in the piece's own type can take it there, and no further.

`|difference| <= FACTOR * eps(type) * (|value| + condition)`. The condition of an element is what its terms add up to
without their signs, where a piece is a sum of products, and how much it changes with its inputs, where it is not; both
are computed of the model, on the same inputs. Neither the largest element of a tensor nor another type in the file
makes it any larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.dims import times
from trtconv.core.documents.verify import Verdict
from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.records import ReadLayer

FACTOR = 16.0
"""Sums of many terms in another order, in blocks, with and without fused products."""
PERTURBATION = 2.0**-10
"""Relative change of the inputs by which the condition is measured: far above rounding, far below curvature."""
_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_TINY = {"float16": 6e-8, "bfloat16": 1e-37, "float32": 1e-37, "float64": 1e-300}
"""What is flushed to zero, or rounded to steps of this size."""
_OVERFLOWING = ("SUM", "PROD")
_NEAR = 0.75
"""Power of the largest number of a type from which on sums are at its end."""
_APPROXIMATED = 1e-6
"""How far Exp, Erf, Tanh and the like are off as libraries compute them, in units of the largest input."""


def eps_of(dtypes: Iterable[str]) -> float:
    """Returns the unit of rounding of a piece: that of the coarsest float that its own tensors have."""
    return max((_EPS[dtype] for dtype in dtypes if dtype in _EPS), default=_EPS["float32"])


@frozen
class Computed:
    """What the model computes of one kind of inputs.

    Args:
        value: The result.
        terms: The same of the magnitudes of all inputs and weights; None where the piece is no sum of products.
        moved: The results on inputs that are moved by `PERTURBATION`; empty where nobody asked.
        beside: The results on inputs that are moved by a few units of rounding: a value on the border between two steps
            may fall to either side.
    """

    value: Array
    terms: Array | None = None
    moved: Sequence[Array] = ()
    beside: Sequence[Array] = ()


@frozen
class Judgement:
    """What a comparison element by element came to.

    Args:
        verdict: In short.
        why: In words; empty where it passed.
        telling: Share of the elements that are not NaN in the reference: those show something.
    """

    verdict: Verdict
    why: str = ""
    telling: float = 1.0


@frozen
class Arithmetic:
    """How a piece computes.

    Args:
        eps: Its unit of rounding.
        approximated: Whether it holds functions that libraries approximate.
        rough: By how much of a value it may be off besides.
        placed: How many units of rounding of its largest input a result is off for each place of the longest axis.
    """

    eps: float
    approximated: bool
    rough: float
    placed: float


def judge(reference: Computed, got: Array, how: Arithmetic, feeds: Mapping[str, Array]) -> Judgement:
    """Compares a result with its reference, element by element.

    Args:
        reference: What the model computes.
        got: What the network computes.
        how: How the piece computes.
    """
    value = reference.value
    if got.shape != value.shape:
        return Judgement(Verdict.SHAPE, f"its shape is {times(got.shape)} instead of {times(value.shape)}")
    # Most are, bit for bit or nearly so, and a comparison in float64 costs as much as many a layer.
    left = _far(value, got, how.eps)
    if not left.any():
        return Judgement(Verdict.PASSED)
    expected, actual = _wide(value[left]), _in_range(_wide(got[left]), value.dtype)
    exact = value.dtype.kind in "iub"
    amplitude = magnitude(feeds)
    slack = _APPROXIMATED * max(1.0, amplitude) * (how.eps / _EPS["float32"]) if how.approximated else 0.0
    size = how.placed * max(value.shape, default=0)
    # By as much as places are rounded, what lies beside them counts, however little it has of it.
    slack += how.eps * size * amplitude
    with np.errstate(all="ignore"):
        allowed: Array | float = slack
        if not exact:
            slack += _TINY.get(str(value.dtype), 0.0)
            allowed = _allowed(reference, left, expected, FACTOR * how.eps, slack) + how.rough * np.abs(expected)
        fits = _fits(expected, actual, allowed)
        for other in reference.beside:
            if other.shape == value.shape:
                fits |= _fits(_wide(other[left]), actual, allowed)
        if not exact and not fits.all():
            fits |= _overflows(value, expected)
    share = 1.0 if exact else 1.0 - float(np.count_nonzero(np.isnan(expected))) / value.size
    if fits.all():
        return Judgement(Verdict.PASSED, telling=share)
    finite = np.ones(expected.shape, bool) if exact else np.isfinite(expected)
    broken = not exact and not np.any(~fits & (~finite | np.isfinite(actual)))
    first = int(np.argmax(~fits))
    where = np.argwhere(left)[first].tolist()
    what = "are NaN or infinite, and finite in the model" if broken else "differ by more than rounding"
    at = f"at {times(where)}, " if where else ""
    why = (
        f"{int(np.count_nonzero(~fits))} of {value.size} elements {what}: "
        f"the first, {at}is {actual[first]:.6g} instead of {expected[first]:.6g}"
    )
    return Judgement(Verdict.NOT_FINITE if broken else Verdict.BEYOND, why, share)


def _far(value: Array, got: Array, eps: float) -> Array:
    """Returns where results are neither equal nor so near that rounding of the value itself explains it."""
    if value.dtype != np.float32 or got.dtype != np.float32:
        return np.asarray(value != got)
    with np.errstate(all="ignore"):
        # Half of what is allowed, since this is itself computed in float32. What is infinite or no number is far.
        error = np.abs(got - value)
        return np.asarray(~((error <= np.float32(FACTOR / 2 * eps) * np.abs(value)) & (error < np.inf)))


def reduced(layers: Iterable[ReadLayer], expected: Array, got: Array) -> Array:
    """Returns what a result should be, with what is got wherever a sum or product of integers overflowed.

    ONNX does not say what comes of that; ONNX Runtime stops at the ends of the type, TensorRT goes on from the other.

    Args:
        layers: Those that it was computed by.
        expected: What ONNX Runtime computes.
        got: What the network computes.
    """
    if expected.dtype.kind not in "iu" or expected.shape != got.shape:
        return expected
    if not any(layer.kind == "REDUCE" and layer.values["op"] in _OVERFLOWING for layer in layers):
        return expected
    ends = np.iinfo(expected.dtype)
    return np.where((expected == ends.min) | (expected == ends.max), got.astype(expected.dtype), expected)


def _allowed(reference: Computed, index: Array, expected: Array, relative: float, slack: float) -> Array:
    scale = np.abs(expected)
    if reference.terms is not None and reference.terms.shape == index.shape:
        scale = scale + np.nan_to_num(np.abs(_wide(reference.terms[index])), nan=0.0, posinf=0.0)
    for moved in reference.moved:
        if moved.shape == index.shape:
            change = np.abs(_wide(moved[index]) - expected) / PERTURBATION
            scale = scale + np.nan_to_num(change, nan=0.0, posinf=0.0)
    allowed: Array = relative * scale + slack
    return allowed


def _fits(expected: Array, actual: Array, allowed: Array | float) -> Array:
    if expected.dtype.kind != "f":
        return np.asarray(expected == actual)
    # Where the model is not a number, as of a variance of zero, any number will do.
    same = (expected == actual) | np.isnan(expected)
    return np.asarray(same | (np.abs(expected - actual) <= allowed))


def _overflows(value: Array, expected: Array) -> Array:
    """Returns where the model is infinite for want of room: others beside it come near the end of the type.

    In which order terms are added decides then what becomes infinite first, and whether infinities meet.

    Args:
        value: All that the model computes.
        expected: Those of its elements that are looked at.
    """
    infinite = np.isinf(expected)
    if value.dtype.kind != "f" or not infinite.any():
        return np.zeros(expected.shape, bool)
    wide = _wide(value)
    largest = np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))
    overflows: Array = infinite & (largest > float(np.finfo(value.dtype).max) ** _NEAR)
    return overflows


def _in_range(values: Array, dtype: np.dtype[Any]) -> Array:
    """Returns values with infinities for those that a type of the model has no room for; a wider network has."""
    if dtype != np.float16:
        return values
    largest = float(np.finfo(np.float16).max)
    return np.where(np.abs(values) > largest, np.copysign(np.inf, values), values)


def _wide(values: Array) -> Array:
    """Returns floats as float64, and integers as they are: those beyond 2**53 must not be rounded."""
    return values.astype(np.float64) if values.dtype.kind in "fV" else values


def magnitude(feeds: Mapping[str, Array]) -> float:
    """Returns the largest finite magnitude among inputs."""
    largest = 0.0
    for values in feeds.values():
        if values.size and values.dtype.kind in "fV":
            wide = np.abs(values.astype(np.float64))
            largest = max(largest, float(np.max(wide[np.isfinite(wide)], initial=0.0)))
    return largest
