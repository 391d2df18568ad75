"""EfficientNMS_TRT, and its variants that return ONNX's indices or take TensorFlow's options.

Where the score threshold is below 0.007, the plugin also hands out boxes of the background class, with a score of
-32768, as long as it has room for them; its page does not say so, and it is not done here. Boxes of equal scores have
no order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.plugins.standard.boxes import corners, ordered, overlaps, sigmoid

Array = NDArray[Any]
_MOST_CANDIDATES = 5000
"""Elements of an image, the best first, that the plugin looks at."""


def efficient_nms(
    boxes: Array,
    scores: Array,
    anchors: Array | None = None,
    *,
    score_threshold: float,
    iou_threshold: float,
    max_output_boxes: int,
    background_class: int = -1,
    score_activation: int = 0,
    class_agnostic: int = 0,
    box_coding: int = 0,
    **_: Any,
) -> tuple[Array, Array, Array, Array]:
    """Chooses boxes.

    Args:
        boxes: (N, boxes, 4), or (N, boxes, 1 or classes, 4).
        scores: (N, boxes, classes), or the same with a last axis of 1.
        anchors: (1 or N, boxes, 4); what `boxes` are then relative to.

    Returns:
        Counts (N, 1), boxes (N, max_output_boxes, 4), scores and classes (N, max_output_boxes); zeros beyond the count.
    """
    decoded, values = _decoded(boxes, anchors, box_coding), _scores(scores)
    results = []
    for image in range(len(values)):
        ratings = sigmoid(values[image]) if score_activation else values[image]
        passed = ratings >= np.float32(score_threshold)
        passed[:, _class_to_skip(background_class, passed.shape[1])] = False
        choice = _choice(decoded[image], values[image], passed, iou_threshold, bool(class_agnostic), max_output_boxes)
        results.append(_rows(choice, decoded[image], ratings, max_output_boxes, boxes.dtype))
    return _stacked(results)


def of_onnx(
    boxes: Array,
    scores: Array,
    *,
    score_threshold: float = 0.5,
    iou_threshold: float = 0.5,
    max_output_boxes_per_class: int,
    center_point_box: int = 0,
    **_: Any,
) -> Array:
    """Returns (N * max_output_boxes_per_class, 3) of image, class, box; padded with the last one, or -1 without any."""
    decoded, values, most = _decoded(boxes, None, center_point_box), _scores(scores), max_output_boxes_per_class
    rows = []
    for image in range(len(values)):
        passed = values[image] >= np.float32(score_threshold)
        for box, kind in _choice(decoded[image], values[image], passed, iou_threshold, False, most, most):
            rows.append((image, kind, box))
    rows += [rows[-1] if rows else (-1, -1, -1)] * (len(values) * most - len(rows))
    return np.array(rows, np.int32).reshape(-1, 3)


def of_tensorflow(
    boxes: Array,
    scores: Array,
    *,
    max_output_size_per_class: int = -1,
    max_total_size: int = 100,
    iou_threshold: float = 0.5,
    score_threshold: float = 0.5,
    pad_per_class: int = 0,
    clip_boxes: int = 0,
    **_: Any,
) -> tuple[Array, Array, Array, Array]:
    """Chooses boxes as TensorFlow's CombinedNonMaxSuppression; shapes as of `efficient_nms`."""
    decoded, values = _decoded(boxes, None, 0), _scores(scores)
    per_class, most = max_output_size_per_class, max_total_size
    if pad_per_class and per_class > 0:
        most = min(most, per_class * values.shape[2])
    results = []
    for image in range(len(values)):
        passed = values[image] >= np.float32(score_threshold)
        choice = _choice(decoded[image], values[image], passed, iou_threshold, False, most, per_class)
        final = np.clip(decoded[image], 0, 1) if clip_boxes else decoded[image]
        results.append(_rows(choice, final, values[image], most, boxes.dtype))
    return _stacked(results)


def _implicit(*inputs: Array, **attributes: Any) -> tuple[Array, Array, Array, Array]:
    counts, *others = of_tensorflow(*inputs, **attributes)
    return counts.reshape(-1), others[0], others[1], others[2]


def _scores(scores: Array) -> Array:
    return scores.reshape(scores.shape[:3]).astype(np.float32)


def _class_to_skip(background: int, classes: int) -> list[int]:
    return [background] if 0 <= background < classes else []


def _decoded(boxes: Array, anchors: Array | None, coding: int) -> Array:
    """Returns boxes as corners, (N, boxes, 1 or classes, 4)."""
    wide = boxes.astype(np.float32)
    wide = wide[:, :, None] if wide.ndim == 3 else wide
    if anchors is not None:
        around = anchors.astype(np.float32)[:, :, None]
        if coding:
            middle = wide[..., :2] * around[..., 2:] + around[..., :2]
            wide = np.concatenate([middle, around[..., 2:] * np.exp(wide[..., 2:])], axis=-1)
        else:
            wide = ordered(wide) + ordered(around)
    return corners(wide) if coding else wide


def _choice(
    boxes: Array, scores: Array, passed: Array, iou: float, agnostic: bool, most: int, per_class: int = -1
) -> Iterator[tuple[int, int]]:
    """Yields box and class of what is kept, the best first."""
    rows, kinds = np.nonzero(passed)
    order = np.argsort(-scores[rows, kinds], kind="stable")[:_MOST_CANDIDATES]
    rows, kinds = rows[order], kinds[order]
    rects = ordered(boxes[rows, np.minimum(kinds, boxes.shape[1] - 1)])
    alive = np.ones(len(rows), bool)
    counts: dict[int, int] = {}
    count = 0
    for at, (row, kind) in enumerate(zip(rows.tolist(), kinds.tolist(), strict=True)):
        if not alive[at]:
            continue
        if count >= most:
            return
        counts[kind] = counts.get(kind, 0) + 1
        # What a class has too many of is not returned, and suppresses others all the same.
        if per_class < 0 or counts[kind] <= per_class:
            count += 1
            yield row, kind
        rivals = alive[at + 1 :] & (agnostic | (kinds[at + 1 :] == kind))
        alive[at + 1 :] &= ~(rivals & (overlaps(rects[at], rects[at + 1 :]) >= np.float32(iou)))


def _rows(choice: Iterator[tuple[int, int]], boxes: Array, scores: Array, most: int, dtype: Any) -> tuple[Array, ...]:
    pairs = list(choice)
    result, values, kinds = np.zeros((most, 4), dtype), np.zeros(most, dtype), np.zeros(most, np.int32)
    for at, (row, kind) in enumerate(pairs):
        result[at], values[at], kinds[at] = boxes[row, min(kind, boxes.shape[1] - 1)], scores[row, kind], kind
    return np.array([len(pairs)], np.int32), result, values, kinds


def _stacked(results: list[tuple[Array, ...]]) -> tuple[Array, Array, Array, Array]:
    counts, boxes, scores, kinds = (np.stack(arrays) for arrays in zip(*results, strict=True))
    return counts, boxes, scores, kinds


REFERENCES = {
    "EfficientNMS_TRT": efficient_nms,
    "EfficientNMS_ONNX_TRT": of_onnx,
    "EfficientNMS_Explicit_TF_TRT": of_tensorflow,
    "EfficientNMS_Implicit_TF_TRT": _implicit,
}
