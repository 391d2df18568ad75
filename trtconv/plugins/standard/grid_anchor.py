"""GridAnchor_TRT and GridAnchorRect_TRT: the anchors of SSD, from no input at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_FIRST_RATIOS = 3
_FIRST_SCALE = 0.1


def grid_anchor(
    *_inputs: Array,
    featureMapShapes: Any,
    aspectRatios: Any,
    variance: Any,
    numLayers: int = 6,
    minSize: float = 0.2,
    maxSize: float = 0.95,
    **_: Any,
) -> tuple[Array, ...]:
    """Returns for each map (1, 2, 4 * H * W * anchors, 1): corners x1, y1, x2, y2 in 0 to 1, then the variances.

    The plugin itself knows no batch; TensorRT puts one of 1 before what it makes (measured on 8.6).
    """
    sizes = [(side, side) for side in featureMapShapes]
    return _anchors(sizes, list(aspectRatios), variance, numLayers, (minSize, maxSize))


def grid_anchor_rect(*_inputs: Array, featureMapShapes: Any, **others: Any) -> tuple[Array, ...]:
    """Is `grid_anchor` for maps of height and width."""
    flat = list(featureMapShapes)
    ratios, variance = list(others["aspectRatios"]), others["variance"]
    limits = others.get("minSize", 0.2), others.get("maxSize", 0.95)
    return _anchors(list(zip(flat[::2], flat[1::2], strict=True)), ratios, variance, others.get("numLayers", 6), limits)


def _anchors(
    sizes: list[tuple[int, int]], ratios: list[float], variance: Any, layers: int, limits: tuple[float, float]
) -> tuple[Array, ...]:
    anchors = []
    for layer, (height, width) in enumerate(sizes):
        scale = _scale(layer, layers, limits)
        if layer == 0:
            own, scales = ratios[:_FIRST_RATIOS], [_FIRST_SCALE, scale, scale]
        else:
            following = 1.0 if layer == layers - 1 else _scale(layer + 1, layers, limits)
            own, scales = [*ratios, 1.0], [scale] * len(ratios) + [np.sqrt(scale * following)]
        roots = np.sqrt(np.array(own, np.float32))
        half = np.stack([np.array(scales, np.float32) * roots, np.array(scales, np.float32) / roots], 1) / 2
        y, x = np.meshgrid((np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width, indexing="ij")
        centre = np.stack([x, y], -1).astype(np.float32)[:, :, None]
        boxes = np.concatenate([centre - half, centre + half], -1).reshape(-1)
        spread = np.tile(np.array(variance, np.float32), boxes.size // 4)
        anchors.append(np.stack([boxes, spread]).astype(np.float32)[None, :, :, None])
    return tuple(anchors)


def _scale(layer: int, layers: int, limits: tuple[float, float]) -> float:
    least, most = limits
    return least + (most - least) * layer / (layers - 1)


REFERENCES = {"GridAnchor_TRT": grid_anchor, "GridAnchorRect_TRT": grid_anchor_rect}
