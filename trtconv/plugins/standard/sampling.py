"""Values between the pixels of a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def bilinear(picture: Array, y: Array, x: Array) -> Array:
    """Samples a picture (C, H, W), zero outside, at places of any shape; returns (C, *shape)."""
    low_y, low_x = np.floor(y), np.floor(x)
    part_y, part_x = (y - low_y).astype(np.float32), (x - low_x).astype(np.float32)
    height, width = picture.shape[1:]
    total = np.zeros((len(picture), *y.shape), np.float32)
    for step_y, weight_y in ((0, 1 - part_y), (1, part_y)):
        for step_x, weight_x in ((0, 1 - part_x), (1, part_x)):
            row, column = low_y.astype(np.int64) + step_y, low_x.astype(np.int64) + step_x
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            values = picture[:, np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
            total += values * (weight_y * weight_x * inside)
    return total


def neighbours(picture: Array, y: Array, x: Array) -> list[tuple[Array, Array]]:
    """Returns the four (values (C, *shape), weights) around places that lie inside a picture (C, H, W)."""
    height, width = picture.shape[1:]
    low_y, low_x = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    high_y, high_x = np.minimum(low_y + 1, height - 1), np.minimum(low_x + 1, width - 1)
    part_y, part_x = (y - low_y).astype(np.float32), (x - low_x).astype(np.float32)
    return [
        (picture[:, low_y, low_x], (1 - part_y) * (1 - part_x)),
        (picture[:, low_y, high_x], (1 - part_y) * part_x),
        (picture[:, high_y, low_x], part_y * (1 - part_x)),
        (picture[:, high_y, high_x], part_y * part_x),
    ]
