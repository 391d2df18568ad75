"""PriorBox_TRT: the boxes of SSD around each place of a feature map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_SAME_RATIO = 1e-6


def prior_box(
    features: Array,
    picture: Array,
    *,
    minSize: Any,
    maxSize: Any = (),
    aspectRatios: Any = (),
    flip: int = 1,
    clip: int = 0,
    variance: Any,
    imgH: int = 0,
    imgW: int = 0,
    stepH: float = 0.0,
    stepW: float = 0.0,
    offset: float = 0.5,
    **_: Any,
) -> Array:
    """Returns (N, 2, 4 * H * W * priors, 1): x1, y1, x2, y2 over the size of the picture, then the variances."""
    height, width = features.shape[2:]
    if not imgH or not imgW:
        imgH, imgW = picture.shape[2:]
    if not stepH or not stepW:
        stepH, stepW = imgH / height, imgW / width
    shapes = _shapes(list(minSize), list(maxSize), _ratios(list(aspectRatios), bool(flip)))
    y, x = np.meshgrid((np.arange(height) + offset) * stepH, (np.arange(width) + offset) * stepW, indexing="ij")
    centre = np.stack([x, y], -1).astype(np.float32)[:, :, None]
    boxes = np.concatenate([centre - shapes / 2, centre + shapes / 2], -1) / np.array([imgW, imgH] * 2, np.float32)
    flat = (np.clip(boxes, 0, 1) if clip else boxes).reshape(-1)
    spread = np.tile(np.array(variance, np.float32), flat.size // 4)
    return np.stack([flat, spread]).astype(features.dtype)[None, :, :, None].repeat(len(features), 0)


def _ratios(values: list[float], flip: bool) -> list[float]:
    """Returns the ratios, 1 first, each once."""
    ratios = [1.0]
    for ratio in values:
        if all(abs(ratio - other) >= _SAME_RATIO for other in ratios):
            ratios += [ratio, 1 / ratio] if flip else [ratio]
    return ratios


def _shapes(least: list[float], most: list[float], ratios: list[float]) -> Array:
    """Returns width and height of the boxes of one place: for each size the square, the larger square, the others."""
    shapes = []
    for number, size in enumerate(least):
        larger = [(np.sqrt(size * most[number]),) * 2] if most else []
        others = [(size * np.sqrt(ratio), size / np.sqrt(ratio)) for ratio in ratios[1:]]
        shapes += [(size, size), *larger, *others]
    return np.array(shapes, np.float32)


REFERENCES = {"PriorBox_TRT": prior_box}
