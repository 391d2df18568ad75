"""Quantisation: `q = saturate(round(x / scale))` and `x = q * scale`, the scale for all, by channel or by block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtconv.runtimes.tensorrt.readback.call import Array, Call, Kernel
from trtconv.runtimes.tensorrt.readback.records import NotProven
from trtconv.runtimes.tensorrt.readback.types import LARGEST, cast, wide

_LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7)}


def _quantize(call: Call) -> Sequence[Array]:
    values, scale = wide(call.input(0)), _scale(call)
    with np.errstate(all="ignore"):
        steps = values / scale
    dtype = call.outputs[0].dtype
    if dtype in _LIMITS:
        return (cast(np.clip(np.rint(steps), *_LIMITS[dtype]), dtype),)
    if dtype in LARGEST:
        return (cast(np.clip(steps, -LARGEST[dtype], LARGEST[dtype]), dtype),)
    raise NotProven(f"it quantises to {dtype}")


def _dequantize(call: Call) -> Sequence[Array]:
    return (np.multiply(call.input(0).astype(np.float32), _scale(call)),)


def _scale(call: Call) -> Array:
    """Returns the scale so that it broadcasts against the values."""
    values, scale = call.input(0), wide(call.input(1))
    zero_point = call.optional(2)
    if zero_point is not None and wide(zero_point).any():
        raise NotProven("its zero point is not zero")
    if scale.size == 1:
        return scale.reshape(())
    if scale.ndim == values.ndim and scale.ndim > 1:
        for axis, (size, count) in enumerate(zip(values.shape, scale.shape, strict=True)):
            if count not in (1, size):
                scale = scale.repeat(-(-size // count), axis).take(np.arange(size), axis)
        return scale
    axis = call["axis"] % values.ndim
    return scale.reshape([-1 if a == axis else 1 for a in range(values.ndim)])


KINDS: dict[str, Kernel] = {"QUANTIZE": _quantize, "DEQUANTIZE": _dequantize}
