"""GroupNormalizationPlugin."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def group_normalization(
    x: Array, scale: Array, bias: Array, *, num_groups: int = 1, eps: float = 1e-5, **_: Any
) -> Array:
    """Normalises each group of channels of each sample of (N, C, ...); scale and bias have C numbers."""
    wide = x.astype(np.float64).reshape(len(x), num_groups, -1)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)).reshape(x.shape)
    shape = (1, -1, *(1,) * (x.ndim - 2))
    result: Array = (normal * scale.astype(np.float64).reshape(shape) + bias.astype(np.float64).reshape(shape)).astype(
        x.dtype
    )
    return result


REFERENCES = {"GroupNormalizationPlugin": group_normalization}
