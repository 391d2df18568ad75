"""Convolution, deconvolution and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback import convolving
from trtconv.runtimes.tensorrt.readback.call import Call, Kernel
from trtconv.runtimes.tensorrt.readback.records import Malformed, NotProven
from trtconv.runtimes.tensorrt.readback.types import wide


def _kernel(call: Call, input_channels_first: bool) -> Array:
    """Returns the kernel in ONNX's layout: of a convolution outputs first, of a deconvolution inputs first."""
    kernel = call.optional(1)
    if kernel is not None:
        return wide(kernel)
    flat = wide(call.weights("kernel"))
    window, groups, maps = call["kernel_size_nd"], call["num_groups"], call["num_output_maps"]
    channels = call.input(0).shape[1]
    shape = (channels, maps // groups) if input_channels_first else (maps, channels // groups)
    return flat.reshape(*shape, *window)


def _bias(call: Call) -> Array:
    bias = call.optional(2)
    return wide(call.weights("bias") if bias is None else bias).reshape(-1)


def _convolution(call: Call) -> Sequence[Array]:
    values, kernel, bias = call.input(0), _kernel(call, False), _bias(call)
    window = kernel.shape[2:]
    reach = [(k - 1) * d + 1 for k, d in zip(window, call["dilation_nd"], strict=True)]
    low, high = _pads(call, values.shape[2:], reach)
    high = [max(after, 0) for after in high]
    if min(low, default=0) < 0:
        raise NotProven("its padding is negative")
    padded = np.pad(values, [(0, 0), (0, 0), *zip(low, high, strict=True)]) if any((*low, *high)) else values
    result = convolving.convolve(padded, kernel, call["stride_nd"], call["dilation_nd"], call["num_groups"])
    return (_biased(result, bias),)


def _deconvolution(call: Call) -> Sequence[Array]:
    """The whole transposed convolution, cropped by the pads: `out = stride * (in - 1) + reach - before - after`."""
    values, kernel, bias = call.input(0), _kernel(call, True), _bias(call)
    window, strides, dilations = kernel.shape[2:], call["stride_nd"], call["dilation_nd"]
    full = convolving.spread(values, kernel, strides, dilations, call["num_groups"])
    low, high = _crops(call, window)
    for axis, (before, after) in enumerate(zip(low, high, strict=True), 2):
        if before < 0 or after < 0:
            raise NotProven("its padding is negative")
        full = full[(slice(None),) * axis + (slice(before, full.shape[axis] - after),)]
    return (_biased(full, bias),)


def _biased(result: Array, bias: Array) -> Array:
    return result + bias.reshape(-1, *(1,) * (result.ndim - 2)) if bias.size else result


def _crops(call: Call, window: Sequence[int]) -> tuple[list[int], list[int]]:
    if not call["padding_mode"].startswith("SAME"):
        return list(call["pre_padding"]), list(call["post_padding"])
    low, high = [], []
    for size, stride, dilation in zip(window, call["stride_nd"], call["dilation_nd"], strict=True):
        total = max(0, (size - 1) * dilation + 1 - stride)
        first, second = total // 2, total - total // 2
        low.append(first if call["padding_mode"] == "SAME_UPPER" else second)
        high.append(second if call["padding_mode"] == "SAME_UPPER" else first)
    return low, high


def _pads(call: Call, sizes: Sequence[int], reach: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns what is padded; at the high ends less than is asked where the last window does not reach that far."""
    mode, strides = call["padding_mode"], call["stride_nd"]
    if mode.startswith("SAME"):
        low, high = [], []
        for size, window, stride in zip(sizes, reach, strides, strict=True):
            total = max(0, (-(-size // stride) - 1) * stride + window - size)
            first, second = total // 2, total - total // 2
            low.append(first if mode == "SAME_UPPER" else second)
            high.append(second if mode == "SAME_UPPER" else first)
        return low, high
    low, high = list(call["pre_padding"]), list(call["post_padding"])
    if mode == "EXPLICIT_ROUND_UP":
        for axis, (size, window, stride) in enumerate(zip(sizes, reach, strides, strict=True)):
            rest = (size + low[axis] + high[axis] - window) % stride
            high[axis] += stride - rest if rest else 0
    elif mode != "EXPLICIT_ROUND_DOWN":
        raise NotProven(f"padding mode {mode} is not known")
    return low, high


def _pooling(call: Call) -> Sequence[Array]:
    values, window = wide(call.input(0)), call["window_size_nd"]
    sizes = values.shape[-len(window) :]
    low, high = _pads(call, sizes, window)
    if call["type"] == "MAX":
        return (_over_windows(values, -np.inf, np.maximum, call, low, high),)
    average = _average(call, values, low, high)
    if call["type"] == "AVERAGE":
        return (average,)
    largest, blend = _over_windows(values, -np.inf, np.maximum, call, low, high), call["blend_factor"]
    return ((1 - blend) * largest + blend * average,)


def _average(call: Call, values: Array, low: Sequence[int], high: Sequence[int]) -> Array:
    """Divides by how much of the window lies on the input or, unless padding is excluded, by all of it.

    TensorRT 8.6 was seen to count what lies beyond the padding too, which ONNX does not.
    """
    rank = len(low)
    counted = np.ones((1,) * (values.ndim - rank) + values.shape[-rank:], np.float32)
    before, beyond = list(low), list(high)
    if not call["average_count_excludes_padding"]:
        edges = [(0, 0)] * (values.ndim - rank) + list(zip(low, high, strict=True))
        counted = np.pad(counted, edges, constant_values=1)
        before = beyond = [0] * rank
    total = _over_windows(values, 0, np.add, call, low, high)
    with np.errstate(all="ignore"):
        return np.asarray(total / _over_windows(counted, 0, np.add, call, before, beyond), np.float32)


def _over_windows(
    values: Array,
    neutral: float,
    join: Callable[[Array, Array], Array],
    call: Call,
    low: Sequence[int],
    high: Sequence[int],
) -> Array:
    """Joins what is in each window, axis by axis."""
    rank = len(low)
    for number, axis in enumerate(range(values.ndim - rank, values.ndim)):
        window, stride = call["window_size_nd"][number], call["stride_nd"][number]
        # A floor of -inf is right for any type that is pooled: integers are not.
        edges = [(0, 0)] * values.ndim
        edges[axis] = (low[number], max(high[number], 0))
        padded = np.pad(values, edges, constant_values=neutral) if any(edges[axis]) else values
        count = (padded.shape[axis] - window) // stride + 1
        if count <= 0:
            raise Malformed("its window is larger than what it is moved over")
        parts = (
            padded[(slice(None),) * axis + (slice(offset, offset + (count - 1) * stride + 1, stride),)]
            for offset in range(window)
        )
        values = np.array(next(parts))
        for part in parts:
            values = join(values, part)
    return values


def _fully_connected(call: Call) -> Sequence[Array]:
    values = wide(call.input(0))
    kernel, bias = _kernel_of_fully_connected(call), _bias(call)
    flat = values.reshape(values.shape[0], -1) if values.ndim < 4 else values.reshape(*values.shape[:-3], -1)
    result = flat @ kernel.reshape(call["num_output_channels"], -1).T
    result = result + bias if bias.size else result
    return (result.reshape(*result.shape, 1, 1) if values.ndim >= 4 else result,)


def _kernel_of_fully_connected(call: Call) -> Array:
    kernel = call.optional(1)
    return wide(call.weights("kernel") if kernel is None else kernel)


KINDS: dict[str, Kernel] = {
    "CONVOLUTION": _convolution,
    "DECONVOLUTION": _deconvolution,
    "POOLING": _pooling,
    "FULLY_CONNECTED": _fully_connected,
}
