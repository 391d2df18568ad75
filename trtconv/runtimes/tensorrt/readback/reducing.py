"""Layers that look along axes: sums, products, sorting, softmax, normalisation, matrix products."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.call import Call, Kernel, axes_of
from trtconv.runtimes.tensorrt.readback.records import NotProven
from trtconv.runtimes.tensorrt.readback.types import wide

_EMPTY: dict[str, Callable[[np.dtype[Any]], Any]] = {
    "SUM": lambda dtype: 0,
    "PROD": lambda dtype: 1,
    "MAX": lambda dtype: -np.inf if dtype.kind == "f" else np.iinfo(dtype).min,
    "MIN": lambda dtype: np.inf if dtype.kind == "f" else np.iinfo(dtype).max,
    "AVG": lambda dtype: np.nan if dtype.kind == "f" else 0,
}
"""What is documented of a reduction over nothing."""
_REDUCED: dict[str, Callable[..., Array]] = {
    "SUM": np.sum,
    "PROD": np.prod,
    "MAX": np.max,
    "MIN": np.min,
    "AVG": np.mean,
}


def _reduce(call: Call) -> Sequence[Array]:
    values, axes, keep, op = wide(call.input(0)), axes_of(call["axes"]), call["keep_dims"], call["op"]
    if op not in _REDUCED:
        raise NotProven(f"{op} is not known")
    if 0 in values.shape and any(values.shape[axis] == 0 for axis in axes):
        shape = np.sum(values, axes, keepdims=keep).shape
        return (np.full(shape, _EMPTY[op](values.dtype), values.dtype),)
    if op == "AVG" and values.dtype.kind in "iu":
        total = np.sum(values, axes, keepdims=keep, dtype=np.int64)
        return (np.trunc(total / np.prod([values.shape[axis] for axis in axes])),)
    if op in ("SUM", "PROD") and values.dtype.kind in "iu":
        return (_REDUCED[op](values, axes, keepdims=keep, dtype=values.dtype),)
    return (np.asarray(_REDUCED[op](values, axes, keepdims=keep)),)


def _topk(call: Call) -> Sequence[Array]:
    values = wide(call.input(0))
    (axis,) = axes_of(call["axes"])
    counts = call.ints(1)
    count = min(counts[0] if counts else call["k"], values.shape[axis])
    # Of equal values the one with the lower index comes first.
    keys = values if call["op"] == "MIN" else _descending(values)
    order = np.argsort(keys, axis, kind="stable").take(np.arange(count), axis)
    return np.take_along_axis(values, order, axis), order


def _descending(values: Array) -> Array:
    return np.invert(values) if values.dtype.kind in "iu" else -values


def _softmax(call: Call) -> Sequence[Array]:
    return (softmax(wide(call.input(0)), axes_of(call["axes"])),)


def softmax(values: Array, axes: Sequence[int]) -> Array:
    """Returns exponentials that add up to 1 over the axes."""
    with np.errstate(invalid="ignore"):
        powers = np.exp(values - values.max(tuple(axes), keepdims=True, initial=-np.inf))
        return np.asarray(powers / powers.sum(tuple(axes), keepdims=True))


def _normalization(call: Call) -> Sequence[Array]:
    # Of values far from zero, float32 leaves nothing of the variance but rounding, which no two programs share.
    values, scale, bias = wide(call.input(0)).astype(np.float64), call.optional(1), call.optional(2)
    axes, groups = axes_of(call["axes"]), call["num_groups"]
    shape = values.shape
    if groups > 1:
        values = values.reshape(shape[0], groups, shape[1] // groups, *shape[2:])
        axes = tuple(axis + 1 for axis in axes)
        axes = (2, *(axis for axis in axes if axis > 2))
    mean = values.mean(axes, keepdims=True)
    centred = values - mean
    variance = np.mean(centred * centred, axes, keepdims=True)
    result = (centred / np.sqrt(variance + call["epsilon"])).reshape(shape)
    if scale is not None:
        result = result * _spread(wide(scale), shape, groups)
    return (result if bias is None else result + _spread(wide(bias), shape, groups),)


def _spread(values: Array, shape: Sequence[int], groups: int) -> Array:
    """Returns scales that broadcast; before TensorRT 10.9 there is one for each group of channels."""
    if groups > 1 and values.ndim > 1 and values.shape[1] == groups != shape[1]:
        return values.repeat(shape[1] // groups, 1)
    return values


def _lrn(call: Call) -> Sequence[Array]:
    values, size = wide(call.input(0)), call["window_size"]
    half = size // 2
    squares = np.pad(values * values, [(0, 0), (half, size - 1 - half)] + [(0, 0)] * (values.ndim - 2))
    total = sum(squares[:, i : i + values.shape[1]] for i in range(size))
    return (values / (call["k"] + call["alpha"] / size * total) ** call["beta"],)


def _matrix_multiply(call: Call) -> Sequence[Array]:
    a, b = (_operand(wide(call.input(i)), call[f"op{i}"]) for i in (0, 1))
    left, right = call["op0"] == "VECTOR", call["op1"] == "VECTOR"
    result = _product(a[..., None, :] if left else a, b[..., :, None] if right else b)
    if left:
        result = result[..., 0, :] if not right else result[..., 0, 0]
    elif right:
        result = result[..., 0]
    return (result,)


def _product(a: Array, b: Array) -> Array:
    """Returns products of matrices: all at once, which is several times faster, where the right one is the same."""
    if a.ndim <= 2 or a.ndim != b.ndim or math.prod(b.shape[:-2]) != 1 or a.shape[-1] != b.shape[-2]:
        return np.asarray(np.matmul(a, b))
    rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
    return np.asarray(np.matmul(rows, b.reshape(b.shape[-2:]))).reshape(*a.shape[:-1], b.shape[-1])


def _operand(values: Array, how: str) -> Array:
    return values.swapaxes(-1, -2) if how == "TRANSPOSE" else values


def _einsum(call: Call) -> Sequence[Array]:
    equation = call["equation"].replace(" ", "")
    if set(equation) - set(string.ascii_letters + ".,->"):
        raise NotProven(f"equation {equation!r} is not known")
    operands = [wide(operand) for operand in call.inputs if operand is not None]
    return (np.einsum(equation, *operands, optimize=len(operands) > 1),)


def _cumulative(call: Call) -> Sequence[Array]:
    if call["op"] != "SUM":
        raise NotProven(f"{call['op']} is not known")
    values, axis = wide(call.input(0)), int(call.input(1).reshape(()))
    turned = np.flip(values, axis) if call["reverse"] else values
    total = np.cumsum(turned, axis, dtype=values.dtype)
    if call["exclusive"]:
        total = np.concatenate([np.zeros_like(total.take([0], axis)), total], axis).take(
            np.arange(values.shape[axis]), axis
        )
    return (np.flip(total, axis) if call["reverse"] else total,)


KINDS: dict[str, Kernel] = {
    "REDUCE": _reduce,
    "TOPK": _topk,
    "SOFTMAX": _softmax,
    "NORMALIZATION": _normalization,
    "LRN": _lrn,
    "MATRIX_MULTIPLY": _matrix_multiply,
    "EINSUM": _einsum,
    "CUMULATIVE": _cumulative,
}
