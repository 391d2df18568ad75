"""MultiscaleDeformableAttnPlugin_TRT."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.plugins.standard.sampling import bilinear

Array = NDArray[Any]


def deformable_attention(value: Array, shapes: Array, starts: Array, places: Array, weights: Array, **_: Any) -> Array:
    """Samples pictures of several sizes at places, and adds what is found, weighted.

    Args:
        value: (N, positions of all levels, heads, C).
        shapes: (levels, 2), height and width of each.
        starts: (levels,), the first position of each.
        places: (N, queries, heads, levels, points, 2) of x and y in 0 to 1.
        weights: (N, queries, heads, levels, points).

    Returns:
        (N, queries, heads, C).
    """
    batch, _positions, heads, channels = value.shape
    result = np.zeros((batch, places.shape[1], heads, channels), np.float32)
    for level, ((height, width), start) in enumerate(zip(shapes.tolist(), starts.tolist(), strict=True)):
        own = value[:, start : start + height * width].astype(np.float32)
        for image, head in np.ndindex(batch, heads):
            picture = own[image, :, head].T.reshape(channels, height, width)
            at = places[image, :, head, level].astype(np.float32)
            sampled = bilinear(picture, at[..., 1] * height - np.float32(0.5), at[..., 0] * width - np.float32(0.5))
            weight = weights[image, :, head, level].astype(np.float32)
            result[image, :, head] += (sampled * weight).sum(-1).T
    return result.astype(value.dtype)


REFERENCES = {"MultiscaleDeformableAttnPlugin_TRT": deformable_attention}
