"""Resizing an image as two products of matrices, one an axis: what Pillow computes, before it rounds to bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.preprocessing import Preprocessing, Size, placement

Matrix = NDArray[np.float32]
_CUBIC = -0.5
"""Pillow's; OpenCV and PyTorch have -0.75."""


def _triangle(x: NDArray[Any]) -> NDArray[Any]:
    weights: NDArray[Any] = np.maximum(0.0, 1.0 - np.abs(x))
    return weights


def _cubic(x: NDArray[Any]) -> NDArray[Any]:
    x, a = np.abs(x), _CUBIC
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


_KERNELS: dict[str, tuple[Callable[[NDArray[Any]], NDArray[Any]], float]] = {
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
}
"""Filter to its kernel, and how far that reaches."""


def resampling(filter: str, source: int, target: int, window: slice = slice(None)) -> Matrix:
    """Returns the weights, (target, source), that resize an axis of `source` pixels to `target`.

    Args:
        filter: One of `core.preprocessing.FILTERS`.
        source: Pixels that there are.
        target: Pixels that there will be.
        window: Which of these are wanted.
    """
    step = source / target
    centers = ((np.arange(target) + 0.5) * step)[window]
    if filter == "nearest" or source == target:
        # Added up as Pillow does: what lies between two pixels is one or the other by the rounding.
        centers = np.cumsum(np.concatenate(([step / 2], np.full(target - 1, step))))[window]
        nearest = np.minimum(centers.astype(int), source - 1)
        matrix: Matrix = (np.arange(source) == nearest[:, None]).astype(np.float32)
        return matrix
    if filter == "linear":
        # What lies beyond the border is the border.
        places = np.clip(centers - 0.5, 0, source - 1)
        around: Matrix = _triangle(np.arange(source) - places[:, None]).astype(np.float32)
        return around
    kernel, reach = _KERNELS[filter]
    wide = max(step, 1.0)
    first = np.maximum((centers - reach * wide + 0.5).astype(int), 0)
    last = np.minimum((centers + reach * wide + 0.5).astype(int), source)
    index = np.arange(source)
    weights = kernel((index + 0.5 - centers[:, None]) / wide)
    weights *= (index >= first[:, None]) & (index < last[:, None])
    whole: Matrix = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    return whole


def resizing(how: Preprocessing, image: Size, size: Size) -> tuple[Matrix, Matrix]:
    """Returns the matrices that bring an image into an input: (rows made, rows taken), and the same of columns.

    Rows and columns that a letterbox adds are of zeros.

    Args:
        how: Its fit and filter count.
        image: Size of the image.
        size: Size of the input.
    """
    place = placement(how.fit, image, size)
    starts = place.top, place.left
    rows, columns = (_placed(how.filter, image[i], place.scaled[i], starts[i], size[i]) for i in (0, 1))
    return rows, columns


def _placed(filter: str, source: int, scaled: int, start: int, target: int) -> Matrix:
    first = max(0, -start)
    weights = resampling(filter, source, scaled, slice(first, first + target))
    result = np.zeros((target, source), np.float32)
    result[max(0, start) : max(0, start) + len(weights)] = weights
    return result


def surroundings(how: Preprocessing, image: Size, size: Size) -> Matrix | None:
    """Returns what a letterbox adds to an input, (height, width); None where it adds nothing."""
    if how.fit != "letterbox" or not how.fill:
        return None
    rows, columns = (np.any(weights, axis=1) for weights in resizing(how, image, size))
    added: Matrix = how.fill * (1 - np.outer(rows, columns)).astype(np.float32)
    return added
