"""PyramidROIAlign_TRT."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.plugins.standard.boxes import ordered
from trtconv.plugins.standard.sampling import neighbours

Array = NDArray[Any]
_LEVELS = 4
_LEGACY_AREA = 224 * 224 * 2 / (1024 * 1024) / 16
"""Of a roi up to which the first level serves, where `legacy` is set; the size of the picture does not count then."""


def pyramid_roi_align(
    rois: Array,
    *levels: Array,
    pooled_size: int = 7,
    image_size: Any = (1024, 1024),
    fpn_scale: int = 224,
    roi_coords_absolute: int = 1,
    roi_coords_swap: int = 0,
    roi_coords_plusone: int = 0,
    roi_coords_transform: int = 2,
    sampling_ratio: int = 0,
    legacy: int = 0,
    **_: Any,
) -> Array:
    """Pools rois (N, n, 4), each from the level (N, C, H, W) that suits its size, to (N, n, C, pooled, pooled)."""
    height, width = image_size
    if legacy:
        roi_coords_transform, roi_coords_plusone, roi_coords_swap, roi_coords_absolute = -1, 0, 1, 0
        sampling_ratio, first = 1, np.float32(_LEGACY_AREA)
    else:
        first = np.float32(fpn_scale * fpn_scale / (width * height) / 4)
    boxes = ordered(rois.astype(np.float32))
    boxes = boxes if roi_coords_swap else boxes[..., [1, 0, 3, 2]]
    scale = np.array([height, width] * 2, np.float32) if roi_coords_absolute else np.ones(4, np.float32)
    boxes = np.clip(boxes, 0, scale) / scale
    extra = np.float32(1) / np.array([height, width], np.float32) if roi_coords_plusone else np.zeros(2, np.float32)
    sizes = boxes[..., 2:] - boxes[..., :2] + extra
    areas = sizes[..., 0] * sizes[..., 1]
    places = sum((areas > first * 4**step).astype(int) for step in range(_LEVELS - 1))
    shape = (*rois.shape[:2], levels[0].shape[1], pooled_size, pooled_size)
    result = np.zeros(shape, np.float32)
    for image, number in np.ndindex(*rois.shape[:2]):
        picture = levels[int(places[image, number])][image].astype(np.float32)
        result[image, number] = _pooled(
            picture, boxes[image, number], pooled_size, roi_coords_transform, sampling_ratio
        )
    return result.astype(levels[0].dtype)


def _pooled(picture: Array, box: Array, size: int, transform: int, ratio: int) -> Array:
    extents = np.array(picture.shape[1:], np.float32)
    if transform == -1:
        start, end, bins, offset = box[:2] * (extents - 1), box[2:] * (extents - 1), size - 1, 0.0
    else:
        shift = np.float32(0.5 if transform == 2 else 0)
        start, end, bins = box[:2] * extents - shift, box[2:] * extents - shift, size
        offset = 0.0 if transform == 0 else 0.5
    places = []
    for axis in range(2):
        length = end[axis] - start[axis]
        count = ratio if ratio > 0 else max(1, math.ceil(length / np.float32(size)))
        delta = length / np.float32(bins)
        inner = delta * (np.arange(count, dtype=np.float32) + np.float32(offset)) / np.float32(count)
        points = start[axis] + delta * np.arange(size, dtype=np.float32)[:, None] + inner
        places.append(np.clip(points, 0, extents[axis] - 1))
    y, x = places[0][:, None, :, None], places[1][None, :, None, :]
    y, x = np.broadcast_arrays(y, x)
    sampled = sum(values * weight for values, weight in neighbours(picture, y, x))
    mean: Array = np.asarray(sampled).mean((-2, -1))
    return mean


REFERENCES = {"PyramidROIAlign_TRT": pyramid_roi_align}
