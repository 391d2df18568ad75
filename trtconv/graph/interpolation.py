"""What each output of a Resize takes along one axis: ONNX's coordinates and kernels, as one matrix."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from trtconv.graph.arrays import Array

_OF_MIDDLES = ("half_pixel", "pytorch_half_pixel")
_COMPUTED = (*_OF_MIDDLES, "asymmetric", "align_corners")
_PRECISION = 1e-5
"""Of a place that is computed in float32."""


@dataclasses.dataclass(frozen=True)
class ResizedAxis:
    """One axis that is resized.

    Args:
        size: How many elements there are.
        count: How many there shall be.
        scale: What the size is multiplied with; count is it rounded.
        begin: Where the region of interest begins, as a share of the axis.
        end: Where it ends.
    """

    size: int
    count: int
    scale: float
    begin: float = 0.0
    end: float = 1.0


@dataclasses.dataclass(frozen=True)
class Interpolation:
    """How a Resize interpolates; the attributes of ONNX's operator, under their names there."""

    mode: str = "nearest"
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False

    @property
    def chooses(self) -> bool:
        """Whether it may have to choose between two elements that are equally near."""
        rounds = self.mode == "nearest" and self.nearest_mode.startswith("round_prefer")
        return rounds and self.coordinate_transformation_mode in _OF_MIDDLES


def divides_exactly(scale: float) -> bool:
    """Whether a float divided by a scale loses no digit: by powers of two."""
    return math.frexp(scale)[0] == 0.5


def coordinates(axis: ResizedAxis, mode: str) -> Array:
    """Returns where in the input each output lies; float64 of shape [count].

    Args:
        mode: The coordinate_transformation_mode.

    Source: ONNX, operator Resize.
    """
    at = np.arange(axis.count, dtype=np.float64)
    length = axis.scale * axis.size
    last = axis.size - 1
    # By the sizes, where these make the scale, and products first: what lies on a border then does so exactly.
    is_by_sizes = axis.scale == axis.count / axis.size
    if is_by_sizes:
        length = float(axis.count)
    if mode == "align_corners":
        return at * 0 if length == 1 else at * last / (length - 1)
    if mode == "tf_crop_and_resize":
        span = (axis.end - axis.begin) * last
        return axis.begin * last + (at * 0 + span / 2 if length == 1 else at * span / (length - 1))
    middles = at if mode == "asymmetric" else at + 0.5
    places = middles * axis.size / axis.count if is_by_sizes else middles / axis.scale
    if mode in ("asymmetric", "tf_half_pixel_for_nn"):
        return places
    middle = places - 0.5
    if mode == "pytorch_half_pixel" and length == 1:
        return at * 0 - 0.5
    if mode == "half_pixel_symmetric":
        return middle + axis.size / 2 * (1 - axis.count / length)
    return middle


def nearest(axis: ResizedAxis, kernel: Interpolation) -> Array:
    """Returns which element each output is; int64 of shape [count]."""
    return _rounded(coordinates(axis, kernel.coordinate_transformation_mode), axis, kernel)


def _rounded(at: Array, axis: ResizedAxis, kernel: Interpolation) -> Array:
    """Returns the elements that places are rounded to."""
    below = np.floor(at)
    over = at - below
    up = {
        "floor": np.zeros_like(over, bool),
        "ceil": over > 0,
        "round_prefer_floor": over > 0.5,
        "round_prefer_ceil": over >= 0.5,
    }[kernel.nearest_mode]
    places: Array = np.clip(below + up, 0, axis.size - 1).astype(np.int64)
    return places


def lies_halfway(axis: ResizedAxis, mode: str) -> bool | None:
    """Whether an output lies halfway between two elements, and a scale that no float divides by exactly may hide it;
    None where that depends on the digits that are computed with."""
    if divides_exactly(axis.scale):
        return False
    at = coordinates(axis, mode)
    off = np.abs(at - np.floor(at) - 0.5)
    is_near = (off < _PRECISION * np.maximum(1, np.abs(at))) & (at > 0) & (at < axis.size - 1)
    if off[is_near].any() or (is_near.any() and axis.size == axis.count):
        return None
    return bool(is_near.any())


def hangs_on_digits(axis: ResizedAxis, kernel: Interpolation) -> bool:
    """Whether a place lies so near a border between two elements that the digits which are computed with decide."""
    if divides_exactly(axis.scale):
        return False
    doubled = 2 * coordinates(axis, kernel.coordinate_transformation_mode)
    off = np.abs(doubled - np.rint(doubled))
    # What lies on it exactly does so in any digits.
    return bool(((off > 0) & (off < _PRECISION * np.maximum(1, np.abs(doubled)))).any())


def misses_borders(axis: ResizedAxis, kernel: Interpolation) -> bool | None:
    """Whether an output that lies exactly on the border between two elements may be computed as one beside it; None
    where that depends on the digits that are computed with.

    TensorRT multiplies with the reciprocal of the scale in float32: by 3, the second output of half_pixel lies at
    0.00000004 in place of 0, and a ceil takes the next element.
    """
    mode = kernel.coordinate_transformation_mode
    if mode not in _COMPUTED:
        return False
    if hangs_on_digits(axis, kernel):
        return None
    exact = nearest(axis, kernel)
    return any((_rounded(places, axis, kernel) != exact).any() for places in in_float32(axis, mode))


def in_float32(axis: ResizedAxis, mode: str) -> Iterator[Array]:
    """Yields places as float32 may compute them: by the scale or by the sizes, sums rounded twice or once.

    Args:
        axis: What is resized; of one element or more.
        mode: "asymmetric", "align_corners", or a coordinate_transformation_mode of middles.
    """
    at, half = np.arange(axis.count, dtype=np.float32), np.float32(0.5)
    if mode == "align_corners":
        yield at * (np.float32(axis.size - 1) / np.float32(max(axis.count - 1, 1)))
        return
    steps = [1 / np.float32(axis.scale)]
    if axis.scale == axis.count / axis.size:
        steps.append(np.float32(axis.size) / np.float32(axis.count))
    for step in steps:
        if mode == "asymmetric":
            yield at * step
        else:
            yield (at + half) * step - half
            yield ((at + half).astype(np.float64) * step - half).astype(np.float32)


def weights(axis: ResizedAxis, kernel: Interpolation) -> Array:
    """Returns how much each output takes of each input: float64 of shape [count, size], rows of sum 1."""
    at = coordinates(axis, kernel.coordinate_transformation_mode)
    shrink = min(axis.scale, 1.0) if kernel.antialias else 1.0
    reach = math.ceil((2 if kernel.mode == "cubic" else 1) / shrink)
    taps = np.floor(at)[:, None] + np.arange(1 - reach, reach + 1)
    distance = (taps - at[:, None]) * shrink
    shares = cubic(distance, kernel.cubic_coeff_a) if kernel.mode == "cubic" else np.clip(1 - np.abs(distance), 0, 1)
    outside = (taps < 0) | (taps > axis.size - 1)
    if kernel.exclude_outside:
        shares = np.where(outside, 0, shares)
    sums = shares.sum(axis=1, keepdims=True)
    if kernel.antialias or kernel.exclude_outside:
        shares = shares / np.where(sums == 0, 1, sums)
    matrix = np.zeros((axis.count, axis.size))
    # What lies outside has the value of the edge.
    places = np.clip(taps, 0, axis.size - 1).astype(np.int64)
    np.add.at(matrix, (np.arange(axis.count)[:, None], places), shares)
    return matrix


def cubic(distance: Array, a: float) -> Array:
    """Returns Keys' kernel, whose sharpness is `a`, at distances of either sign."""
    x = np.abs(distance)
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    kernel: Array = np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))
    return kernel
