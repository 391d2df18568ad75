"""Boxes, as several plugins have them: (y1, x1, y2, x2) or (x1, y1, x2, y2), which is the same to what is done here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def ordered(boxes: Array) -> Array:
    """Returns boxes (..., 4) with the lower corner first."""
    low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
    return np.concatenate([low, high], axis=-1)


def corners(boxes: Array) -> Array:
    """Returns boxes (..., centre and size) as two corners."""
    centre, half = boxes[..., :2], boxes[..., 2:] * np.float32(0.5)
    return np.concatenate([centre - half, centre + half], axis=-1)


def overlaps(box: Array, boxes: Array) -> Array:
    """Returns the intersection over union of a box with others (n, 4), all with the lower corner first."""
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    common = area(np.concatenate([low, high], axis=1))
    union = area(box) + area(boxes) - common
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: Array = np.where((common > 0) & (union > 0), common / union, np.float32(0))
    return ratios


def area(boxes: Array) -> Array:
    """Returns the areas of boxes (..., 4); 0 for one whose corners are crossed."""
    size = np.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    areas: Array = size[..., 0] * size[..., 1]
    return areas


def sigmoid(values: Array) -> Array:
    """Returns the logistic function."""
    with np.errstate(over="ignore"):
        result: Array = 1 / (1 + np.exp(-values))
    return result
