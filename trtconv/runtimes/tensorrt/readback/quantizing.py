"""Quantisation: `q = saturate(round(x / scale))` and `x = q * scale`, the scale for all, by channel or by block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.call import Call, Kernel
from trtconv.runtimes.tensorrt.readback.records import NotProven
from trtconv.runtimes.tensorrt.readback.types import LARGEST, cast, wide

_FLOATS = ("float32", "float16")
_LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7)}


def _quantize(call: Call) -> Sequence[Array]:
    values, scale = wide(call.input(0)), _scale(call)
    with np.errstate(all="ignore"):
        steps = values / scale
    dtype = _steps_type(call)
    if dtype in _LIMITS:
        return (cast(np.clip(np.rint(steps), *_LIMITS[dtype]), dtype),)
    if dtype in LARGEST:
        return (cast(np.clip(steps, -LARGEST[dtype], LARGEST[dtype]), dtype),)
    raise NotProven(f"it quantises to {dtype}")


def _steps_type(call: Call) -> str:
    """Returns the type that is quantised to.

    Before TensorRT 9 the layer has no say in it: there is int8 alone, and until it is built the network states the type
    of what is quantised, which is kept here too, since every step fits in it.
    """
    dtype = call.outputs[0].dtype
    return "int8" if "to_type" not in call.layer.values and dtype in _FLOATS else dtype


def _dequantize(call: Call) -> Sequence[Array]:
    return (np.multiply(call.input(0).astype(np.float32), _scale(call)),)


def dequantize_kernel(call: Call) -> Sequence[Array]:
    """Computes the kernel of a deconvolution, (inputs, outputs / groups, *window), as builders do: scaled by output
    channel, whatever axis the layer names (measured on TensorRT 8.6: results are off by 0.4 to 0.9 of the largest).

    Which of the scales they take for which channel is not known; each once and then again is one wrong answer of many.
    """
    scale = wide(call.input(1)).reshape(-1)
    if scale.size == 1 or call.input(1).ndim > 1 or call["axis"] == 1:
        return _dequantize(call)
    values = call.input(0).astype(np.float32)
    return (values * np.resize(scale, values.shape[1]).reshape(1, -1, *(1,) * (values.ndim - 2)),)


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
