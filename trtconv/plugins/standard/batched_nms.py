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
    rects: Array = np.zeros((images, keepTopK, 4), np.float32)
    ratings: Array = np.zeros((images, keepTopK), np.float32)
    kinds = np.full((images, keepTopK), -1, np.float32)
    for image in range(images):
        candidates: list[tuple[float, int, int]] = []
        for kind in (number for number in range(classes) if number != backgroundLabelId):
            own = wide[image, :, 0 if shareLocation else kind]
            column = values[image, :, kind]
            best = [int(i) for i in np.argsort(-column, kind="stable") if column[i] > scoreThreshold][:topK]
            for row in _survivors(ordered(own), best, iouThreshold, bool(isNormalized), bool(caffeSemantics)):
                candidates.append((float(column[row]), kind, row))
        candidates.sort(key=lambda candidate: -candidate[0])
        for at, (score, kind, row) in enumerate(candidates[:keepTopK]):
            box = wide[image, row, 0 if shareLocation else kind]
            rects[image, at] = np.clip(box, 0, 1) if clipBoxes else box
            ratings[image, at], kinds[image, at] = score, kind
        counts[image] = min(len(candidates), keepTopK)
    return counts, rects.astype(boxes.dtype), ratings.astype(boxes.dtype), kinds.astype(boxes.dtype)


def _survivors(boxes: Array, rows: list[int], limit: float, normalized: bool, caffe: bool) -> list[int]:
    """Returns those of some rows, the best first, that no better one of them overlaps by more than the limit."""
    ranked, free, best = boxes[rows], np.ones(len(rows), bool), []
    for at, row in enumerate(rows):
        if free[at]:
            best.append(row)
            free[at + 1 :] &= _overlaps(ranked[at], ranked[at + 1 :], normalized, caffe) <= np.float32(limit)
    return best


def _overlaps(box: Array, boxes: Array, normalized: bool, caffe: bool) -> Array:
    """Returns the intersection over union of a box with others; in pixels a box includes its last row and column."""
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    size = np.where((high >= low).all(1, keepdims=True), high - low, np.float32(0))
    if not normalized and caffe:
        size = size + np.float32(1)
    pixel = np.float32(0 if normalized else 1)
    own, others = ((corners[..., 2:] - corners[..., :2] + pixel).prod(-1) for corners in (box, boxes))
    common = size.prod(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: Array = np.where((size > 0).all(1), common / (own + others - common), np.float32(0))
    return ratios


def _static(*inputs: Array, **attributes: Any) -> tuple[Array, Array, Array, Array]:
    counts, *others = batched_nms(*inputs, **attributes)
    return counts.reshape(-1), others[0], others[1], others[2]


REFERENCES = {"BatchedNMS_TRT": _static, "BatchedNMSDynamic_TRT": batched_nms}
