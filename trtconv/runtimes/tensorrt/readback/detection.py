"""Non-maximum suppression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.call import Call, Kernel
from trtconv.runtimes.tensorrt.readback.records import NotProven
from trtconv.runtimes.tensorrt.readback.types import wide


def _nms(call: Call) -> Sequence[Array]:
    """Chooses boxes class by class; the rows are in the order of their scores within each batch."""
    boxes, scores, limit = wide(call.input(0)), wide(call.input(1)), int(call.input(2).reshape(()))
    overlap = _threshold(call, 3, 1.0)
    floor = _threshold(call, 4, 0.0)
    rows: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        candidates = []
        for kind in range(scores.shape[2]):
            mine = boxes[batch] if boxes.ndim == 3 else boxes[batch, :, min(kind, boxes.shape[2] - 1)]
            corners = _corners(mine, call["bounding_box_format"])
            candidates += [
                (-float(scores[batch, box, kind]), kind, box)
                for box in _choice(corners, scores[batch, :, kind], limit, overlap, floor, call["topk_box_limit"])
            ]
        rows += [(batch, kind, box) for _, kind, box in sorted(candidates)]
    return np.array(rows, np.int64).reshape(-1, 3), np.array(len(rows))


def _threshold(call: Call, index: int, default: float) -> float:
    threshold = call.optional(index)
    return default if threshold is None else float(threshold.reshape(()))


def _corners(boxes: Array, form: str) -> Array:
    if form == "CORNER_PAIRS":
        first, second = boxes[:, :2], boxes[:, 2:]
        return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)
    if form == "CENTER_SIZES":
        centre, size = boxes[:, :2], boxes[:, 2:]
        return np.concatenate([centre - size / 2, centre + size / 2], 1)
    raise NotProven(f"boxes as {form}")


def _choice(boxes: Array, scores: Array, limit: int, overlap: float, floor: float, most: int) -> list[int]:
    candidates = [int(i) for i in np.argsort(-scores, kind="stable") if scores[i] > floor]
    if 0 < most < len(candidates):
        candidates = candidates[:most]
    choice: list[int] = []
    for box in candidates:
        if len(choice) >= limit:
            break
        if all(_overlap(boxes[box], boxes[other]) <= overlap for other in choice):
            choice.append(box)
    return choice


def _overlap(one: Array, two: Array) -> float:
    low, high = np.maximum(one[:2], two[:2]), np.minimum(one[2:], two[2:])
    common = float(np.prod(np.maximum(high - low, 0)))
    union = float(np.prod(one[2:] - one[:2]) + np.prod(two[2:] - two[:2])) - common
    return common / union if union > 0 else 0.0


KINDS: dict[str, Kernel] = {"NMS": _nms}
