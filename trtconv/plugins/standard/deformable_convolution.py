"""ModulatedDeformConv2d. Of stride, padding and dilation the plugin takes the first number along the width."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.plugins.standard.sampling import bilinear

Array = NDArray[Any]


def deformable_convolution(
    x: Array,
    offset: Array,
    mask: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    group: int = 1,
    deformable_group: int = 1,
    **_: Any,
) -> Array:
    """Convolves x (N, C, H, W) with weight (out, C / group, kh, kw), each tap moved by `offset` and scaled by `mask`.

    Args:
        offset: (N, deformable_group * kh * kw * 2, oh, ow): of each tap the move down, then to the right.
        mask: (N, deformable_group * kh * kw, oh, ow).
    """
    batch, channels = x.shape[:2]
    out, _inner, kh, kw = weight.shape
    oh, ow = offset.shape[2:]
    moves = offset.astype(np.float32).reshape(batch, deformable_group, kh * kw, 2, oh, ow)
    scales = mask.astype(np.float32).reshape(batch, deformable_group, kh * kw, oh, ow)
    rows, columns = np.meshgrid(
        np.arange(oh) * stride[1] - padding[1], np.arange(ow) * stride[0] - padding[0], indexing="ij"
    )
    taps = np.zeros((batch, channels, kh * kw, oh, ow), np.float32)
    per_group = channels // deformable_group
    for image, part, tap in np.ndindex(batch, deformable_group, kh * kw):
        y = rows + tap // kw * dilation[1] + moves[image, part, tap, 0]
        x_at = columns + tap % kw * dilation[0] + moves[image, part, tap, 1]
        own = slice(part * per_group, (part + 1) * per_group)
        taps[image, own, tap] = bilinear(x[image, own].astype(np.float32), y, x_at) * scales[image, part, tap]
    grouped = taps.reshape(batch, group, channels // group * kh * kw, oh * ow)
    kernels = weight.astype(np.float32).reshape(group, out // group, -1)
    result = np.einsum("gok,ngkp->ngop", kernels, grouped).reshape(batch, out, oh, ow)
    if bias is not None:
        result = result + bias.astype(np.float32).reshape(1, -1, 1, 1)
    typed: Array = result.astype(x.dtype)
    return typed


REFERENCES = {"ModulatedDeformConv2d": deformable_convolution}
