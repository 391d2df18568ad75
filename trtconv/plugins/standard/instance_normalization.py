"""InstanceNormalization_TRT, with the activation that later versions of it have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def instance_normalization(
    x: Array, *, epsilon: float = 1e-5, scales: Any, bias: Any, relu: int = 0, alpha: float = 0.0, **_: Any
) -> Array:
    """Normalises each channel of each sample of (N, C, ...); scales and bias have C numbers."""
    wide, axes = x.astype(np.float64), tuple(range(2, x.ndim))
    centred = wide - wide.mean(axes, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon)
    shape = (1, -1, *(1 for _axis in axes))
    result = normal * np.asarray(scales, np.float64).reshape(shape) + np.asarray(bias, np.float64).reshape(shape)
    activated: Array = np.where((result < 0) & bool(relu), result * alpha, result).astype(x.dtype)
    return activated


REFERENCES = {"InstanceNormalization_TRT": instance_normalization}
