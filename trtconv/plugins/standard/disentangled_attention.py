"""DisentangledAttention_TRT: DeBERTa's three terms of attention, with relative positions in logarithmic buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def disentangled_attention(
    content: Array, to_position: Array, from_position: Array, *, span: int, factor: float, **_: Any
) -> Array:
    """Adds to `content` (N, S, S) what `to_position` and `from_position` (N, S, 2 * span) have for the distance."""
    length = content.shape[1]
    places = np.arange(length)
    buckets = _buckets(places[:, None] - places[None, :], span, length)
    there = np.take_along_axis(to_position, np.broadcast_to(buckets, content.shape), 2)
    # Of the other's row, at the same distance.
    back = np.take_along_axis(from_position, np.broadcast_to(buckets.T, content.shape), 2).swapaxes(1, 2)
    total = content.astype(np.float32) + there.astype(np.float32) + back.astype(np.float32)
    result: Array = (total * np.float32(factor)).astype(content.dtype)
    return result


def _buckets(distance: Array, span: int, length: int) -> Array:
    """Returns the column for each distance: itself up to half of `span`, beyond by its logarithm."""
    middle = span // 2
    base = np.log(np.float32(max(middle, 1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.float32(middle - 1) / (np.log(np.float32(length - 1)) - base) * np.float32(1 - 1e-7)
        far = np.ceil((np.log(np.abs(distance).astype(np.float32)) - base) * steps) + middle
    far = np.where(np.isfinite(far), far, 0).astype(np.int64) * np.sign(distance)
    buckets: Array = np.clip(np.where(np.abs(distance) <= middle, distance, far) + span, 0, 2 * span - 1)
    return buckets


REFERENCES = {"DisentangledAttention_TRT": disentangled_attention}
