"""The arithmetic of linear quantisation, in one place. No ONNX, no TensorRT.

    quantize(x)   = clip(round_half_even(x / scale) + zero_point, qmin, qmax)
    dequantize(q) = (q - zero_point) * scale

Scales are scalars (per tensor) or have one entry for each index of an axis (per channel). TensorRT knows symmetric int8
only: zero_point 0.

Source: ONNX operators QuantizeLinear and DequantizeLinear (opset 10, 13, 19, 21).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

UINT8_MIDDLE = 128
"""The zero point of uint8 that means just what 0 means for int8."""

EMULATED = frozenset({"int8", "uint8", "int16", "uint16"})
"""Types whose quantisation float32 computes without rounding of its own."""


def along(values: NDArray[Any], axis: int, rank: int) -> NDArray[Any]:
    """Returns per-channel values shaped to broadcast along an axis of a tensor; single values become scalars.

    Args:
        values: Shape (), (1,) or (channels,).
        axis: Axis of the channels, may be negative.
        rank: Rank of the tensor.
    """
    if values.size == 1:
        return values.reshape(())
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)


def dequantize(q: NDArray[Any], scale: NDArray[Any], zero_point: NDArray[Any] | None, axis: int) -> NDArray[Any]:
    """Returns the real values of a quantised tensor, in the scale's type.

    Computed in float32 and rounded once, as ONNX Runtime does: float16 holds no int32.
    """
    # float64 holds every value of all integer types up to 32 bits, and of the 8-bit floats.
    shifted = q.astype(np.float64)
    if zero_point is not None:
        shifted = shifted - along(zero_point.astype(np.float64), axis, q.ndim)
    with np.errstate(over="ignore"):  # beyond the largest float16 lies inf for ONNX Runtime too
        result: NDArray[Any] = shifted.astype(np.float32) * along(scale.astype(np.float32), axis, q.ndim)
        return result.astype(scale.dtype)


def dequantize_blocks(
    q: NDArray[Any], scale: NDArray[Any], zero_point: NDArray[Any] | None, axis: int, block: int
) -> NDArray[Any] | None:
    """Returns the real values of a tensor with one scale for each `block` entries along an axis.

    None where the scales do not fit; they have the tensor's shape, but for the axis.
    """
    scales = over_blocks(scale, q.shape, axis, block)
    points = None if zero_point is None else over_blocks(zero_point, q.shape, axis, block)
    if scales is None or (zero_point is not None and points is None):
        return None
    shifted = q.astype(np.float64) - (0 if points is None else points.astype(np.float64))
    result: NDArray[Any] = shifted.astype(np.float32) * scales.astype(np.float32)
    return result.astype(scale.dtype)


def over_blocks(values: NDArray[Any], shape: tuple[int, ...], axis: int, block: int) -> NDArray[Any] | None:
    """Returns what there is one of for each block of a tensor's axis as it belongs to each element.

    None where they do not fit: they have the tensor's shape, but for the axis.
    """
    axis %= max(1, len(shape))
    if not shape or values.shape != tuple(
        -(-size // block) if position == axis else size for position, size in enumerate(shape)
    ):
        return None
    return np.take(np.repeat(values, block, axis), np.arange(shape[axis]), axis)


def quantize(x: NDArray[Any], scale: NDArray[Any], zero_point: NDArray[Any], axis: int) -> NDArray[Any]:
    """Returns x in the zero point's type, one of `EMULATED`; computed in float32, as ONNX Runtime does."""
    ratio = np.rint(x.astype(np.float32) / along(scale.astype(np.float32), axis, x.ndim))
    shifted = ratio.astype(np.float64) + along(zero_point.astype(np.float64), axis, x.ndim)
    result: NDArray[Any] = np.clip(shifted, *limits(str(zero_point.dtype))).astype(zero_point.dtype)
    return result


def quantize_symmetric(x: NDArray[Any], scale: NDArray[Any], axis: int) -> NDArray[np.int8]:
    """Returns x in int8 with zero point 0."""
    # In place: a weight may be a third of its model.
    ratio = np.asarray(x.astype(np.float32, copy=False) / along(scale.astype(np.float32), axis, x.ndim))
    np.clip(np.rint(ratio, out=ratio), -128, 127, out=ratio)
    return ratio.astype(np.int8)


def symmetric_scale(x: NDArray[Any], axis: int | None, dtype: Any = np.float32) -> NDArray[Any]:
    """Returns the scale that maps the largest magnitude of each channel (or of all, for axis None) to 127.

    A channel of zeros, or of values so small that their scale would be 0, gets the scale 1: a scale must be positive.
    """
    others = None if axis is None else tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    values = x.astype(np.float32, copy=False)
    largest = np.maximum(values.max(axis=others, initial=0.0), -values.min(axis=others, initial=0.0))
    scale: NDArray[Any] = np.asarray(largest / np.float32(127)).astype(dtype)
    return np.where(scale > 0, scale, np.ones_like(scale))


def limits(dtype: str) -> tuple[int, int]:
    """Returns the smallest and largest value of an integer type."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def symmetric_cover(scale: float, zero_point: int, dtype: str) -> float:
    """Returns the int8 scale whose symmetric range covers that of an asymmetric quantiser."""
    low, high = limits(dtype)
    return max((zero_point - low) * scale / 128, (high - zero_point) * scale / 127)


def scale_fault(scale: NDArray[Any]) -> str | None:
    """Returns what is wrong with the values of a scale, or None."""
    values = scale.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values) | (values <= 0))
    if bad.size == 0:
        return None
    first = int(bad[0])
    where = f" at channel {first}" if scale.size > 1 else ""
    more = f" and {bad.size - 1} more" if bad.size > 1 else ""
    return f"scale {values.reshape(-1)[first]:g}{where}{more} is not a positive finite number"
