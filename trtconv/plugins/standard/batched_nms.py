"""BatchedNMS_TRT and BatchedNMSDynamic_TRT: suppression class by class, then the best of all classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.plugins.standard.boxes import ordered

Array = NDArray[Any]


def batched_nms(
    boxes: Array,
    scores: Array,
    *,
    topK: int,
    keepTopK: int,
    scoreThreshold: float,
    iouThreshold: float,
    shareLocation: int = 1,
    backgroundLabelId: int = -1,
    isNormalized: int = 1,
    clipBoxes: int = 1,
    caffeSemantics: int = 1,
    **_: Any,
) -> tuple[Array, Array, Array, Array]:
    """Chooses boxes.

    Args:
        boxes: (N, boxes, 1 or classes, 4).
        scores: (N, boxes, classes), or the same with a last axis of 1.

    Returns:
        Counts (N, 1), boxes (N, keepTopK, 4), scores and classes (N, keepTopK), which are floats; zeros and the class
        -1 beyond the count.
    """
    values: Array = scores.reshape(scores.shape[:3]).astype(np.float32)
    wide = boxes.astype(np.float32)
    images, classes = values.shape[0], values.shape[2]
    counts: Array = np.zeros((images, 1), np.int32)
    kept: Array = np.zeros((images, keepTopK, 4), np.float32)
    shown: Array = np.zeros((images, keepTopK), np.float32)
    kinds = np.full((images, keepTopK), -1, np.float32)
    for image in range(images):
        found: list[tuple[float, int, int]] = []
        for kind in (each for each in range(classes) if each != backgroundLabelId):
            own = wide[image, :, 0 if shareLocation else kind]
            column = values[image, :, kind]
            best = [int(i) for i in np.argsort(-column, kind="stable") if column[i] > scoreThreshold][:topK]
            for row in _survivors(ordered(own), best, iouThreshold, bool(isNormalized), bool(caffeSemantics)):
                found.append((float(column[row]), kind, row))
        found.sort(key=lambda each: -each[0])
        for at, (score, kind, row) in enumerate(found[:keepTopK]):
            box = wide[image, row, 0 if shareLocation else kind]
            kept[image, at] = np.clip(box, 0, 1) if clipBoxes else box
            shown[image, at], kinds[image, at] = score, kind
        counts[image] = min(len(found), keepTopK)
    return counts, kept.astype(boxes.dtype), shown.astype(boxes.dtype), kinds.astype(boxes.dtype)


def _survivors(boxes: Array, rows: list[int], limit: float, normalized: bool, caffe: bool) -> list[int]:
    kept: list[int] = []
    for row in rows:
        if all(_overlap(boxes[other], boxes[row], normalized, caffe) <= np.float32(limit) for other in kept):
            kept.append(row)
    return kept


def _overlap(one: Array, two: Array, normalized: bool, caffe: bool) -> Any:
    """Returns the intersection over union; in pixels a box includes its last row and column."""
    low, high = np.maximum(one[:2], two[:2]), np.minimum(one[2:], two[2:])
    size = high - low if (high >= low).all() else np.zeros(2, np.float32)
    if not normalized and caffe:
        size = size + 1
    if not (size > 0).all():
        return np.float32(0)
    pixel = np.float32(0 if normalized else 1)
    areas = [np.prod(box[2:] - box[:2] + pixel) for box in (one, two)]
    common = size[0] * size[1]
    return common / (areas[0] + areas[1] - common)


def _static(*inputs: Array, **attributes: Any) -> tuple[Array, Array, Array, Array]:
    counts, *others = batched_nms(*inputs, **attributes)
    return counts.reshape(-1), others[0], others[1], others[2]


REFERENCES = {"BatchedNMS_TRT": _static, "BatchedNMSDynamic_TRT": batched_nms}
