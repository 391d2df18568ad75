"""ROIAlign_TRT."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.plugins.standard.sampling import neighbours

Array = NDArray[Any]


def roi_align(
    features: Array,
    rois: Array,
    batch_indices: Array,
    *,
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    mode: int = 1,
    coordinate_transformation_mode: int = 1,
    **_: Any,
) -> Array:
    """Pools features (N, C, H, W) in rois (n, 4) of x1, y1, x2, y2 to (n, C, output_height, output_width).

    Args:
        batch_indices: (n,), which picture each is of.
        mode: 0: the largest of weighted neighbours; 1: the mean.
        coordinate_transformation_mode: 1: pixels have their centres at one half.
    """
    half = np.float32(0.5 if coordinate_transformation_mode else 0)
    result = np.zeros((len(rois), features.shape[1], output_height, output_width), np.float32)
    for number, (roi, image) in enumerate(zip(rois.astype(np.float32), batch_indices.tolist(), strict=True)):
        left, top, right, bottom = roi * np.float32(spatial_scale) - half
        width, height = right - left, bottom - top
        if not coordinate_transformation_mode:
            width, height = max(width, np.float32(1)), max(height, np.float32(1))
        y = _places(top, height, output_height, sampling_ratio)
        x = _places(left, width, output_width, sampling_ratio)
        picture = features[image].astype(np.float32)
        for row in range(output_height):
            for column in range(output_width):
                result[number, :, row, column] = _pooled(picture, y[row], x[column], mode)
    return result.astype(features.dtype)


def _places(start: Any, length: Any, bins: int, ratio: int) -> Array:
    """Returns the coordinates at which each bin is sampled, (bins, samples)."""
    size = np.float32(length) / np.float32(bins)
    count = ratio if ratio > 0 else max(math.ceil(size), 0)
    step = size / np.float32(max(count, 1))
    inner = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * step
    places: Array = np.float32(start) + np.arange(bins, dtype=np.float32)[:, None] * size + inner
    return places


def _pooled(picture: Array, y: Array, x: Array, mode: int) -> Array:
    height, width = picture.shape[1:]
    rows, columns = (grid.reshape(-1) for grid in np.meshgrid(y, x, indexing="ij"))
    if not rows.size:
        return np.zeros(len(picture), np.float32)
    outside = (rows < -1) | (rows > height) | (columns < -1) | (columns > width)
    around = neighbours(picture, np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1))
    weighted = np.stack([values * weight for values, weight in around])
    samples = weighted.sum(0) if mode else weighted.max(0)
    samples = np.where(outside, np.float32(0), samples)
    pooled: Array = samples.mean(1) if mode else samples.max(1)
    return pooled


REFERENCES = {"ROIAlign_TRT": roi_align}
