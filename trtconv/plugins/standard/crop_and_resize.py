"""CropAndResize and CropAndResizeDynamic, as TensorFlow's operator: bilinear, zero outside."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.plugins.standard.sampling import neighbours

Array = NDArray[Any]


def crop_and_resize(pictures: Array, rois: Array, *, crop_width: int, crop_height: int, **_: Any) -> Array:
    """Cuts rois (N, n, 4) of y1, x1, y2, x2 in 0 to 1 from (N, C, H, W), to (N, n, C, crop_height, crop_width)."""
    boxes = rois.reshape(len(pictures), -1, 4).astype(np.float32)
    count, channels = boxes.shape[1], pictures.shape[1]
    result = np.zeros((len(pictures), count, channels, crop_height, crop_width), np.float32)
    for image, number in np.ndindex(len(pictures), count):
        picture, (top, left, bottom, right) = pictures[image].astype(np.float32), boxes[image, number]
        y = _places(top, bottom, picture.shape[1], crop_height)
        x = _places(left, right, picture.shape[2], crop_width)
        rows, columns = np.meshgrid(y, x, indexing="ij")
        last_y, last_x = picture.shape[1] - 1, picture.shape[2] - 1
        inside = (rows >= 0) & (rows <= last_y) & (columns >= 0) & (columns <= last_x)
        around = neighbours(picture, np.clip(rows, 0, last_y), np.clip(columns, 0, last_x))
        result[image, number] = sum(values * weight for values, weight in around) * inside
    return result.astype(pictures.dtype)


def _places(start: Any, end: Any, size: int, crop: int) -> Array:
    last = np.float32(size - 1)
    if crop == 1:
        return np.array([np.float32(0.5) * (start + end) * last], np.float32)
    step = (end - start) * last / np.float32(crop - 1)
    places: Array = start * last + np.arange(crop, dtype=np.float32) * step
    return places


REFERENCES = {"CropAndResize": crop_and_resize, "CropAndResizeDynamic": crop_and_resize}
