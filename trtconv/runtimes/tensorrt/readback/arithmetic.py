"""Layers that compute each element from the elements at the same place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.call import Call, Kernel
from trtconv.runtimes.tensorrt.readback.records import Malformed, NotProven
from trtconv.runtimes.tensorrt.readback.types import cast, wide


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    _refuse_zero(b)
    quotient = np.floor_divide(a, b)
    # Towards zero, as C++ divides integers.
    return np.asarray(quotient + ((quotient < 0) & (quotient * b != a)), a.dtype)


def _floor_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        _refuse_zero(b)
        return np.floor_divide(a, b)
    return np.floor(np.divide(a, b))


def _refuse_zero(divisor: Array) -> None:
    if (divisor == 0).any():
        raise NotProven("an integer is divided by zero")


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        return np.power(a.astype(np.float64), b.astype(np.float64))
    return np.power(a, b)


_ERF_END, _ERF_STEPS = 6, 128
"""Beyond that Erf is 1 in float64 too; of how many places of each unit its value is kept."""
_BLOCK = 1 << 16


@functools.cache
def _erf_table() -> tuple[Array, Array]:
    """Returns Erf, and how steep it is, at places from -_ERF_END on."""
    places = np.arange(-_ERF_END * _ERF_STEPS, _ERF_END * _ERF_STEPS + 1) / _ERF_STEPS
    return np.array([math.erf(x) for x in places], np.float32), np.asarray(
        2 / math.sqrt(math.pi) * np.exp(-(places**2)), np.float32
    )


def _erf(values: Array) -> Array:
    """Returns Erf in float32, in blocks that stay in the cache."""
    flat = np.asarray(values, np.float32).reshape(-1)
    result = np.empty_like(flat)
    for start in range(0, flat.size, _BLOCK):
        result[start : start + _BLOCK] = _erf_of_few(flat[start : start + _BLOCK])
    return np.asarray(result.reshape(values.shape), values.dtype)


def _erf_of_few(values: Array) -> Array:
    """Returns Erf by three terms of its Taylor series at the nearest place of the table."""
    x = np.clip(values, -_ERF_END, _ERF_END)
    near = np.rint(x * _ERF_STEPS)
    # What is not a number has a place too, and is none again in the end.
    places = (near + _ERF_END * _ERF_STEPS).astype(np.int32)
    height, slope = (table.take(places, mode="clip") for table in _erf_table())
    near /= _ERF_STEPS
    rest = x - near
    drop = near * rest
    return np.asarray(height + slope * rest * (1 - drop + (2 * drop * drop - rest * rest) / 3))


_ELEMENTWISE: dict[str, Callable[[Array, Array], Array]] = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "SUB": np.subtract,
    "DIV": _divide,
    "POW": _power,
    "FLOOR_DIV": _floor_divide,
    "AND": np.logical_and,
    "OR": np.logical_or,
    "XOR": np.logical_xor,
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "LESS": np.less,
}

_UNARY: dict[str, Callable[[Array], Array]] = {
    "EXP": np.exp,
    "LOG": np.log,
    "SQRT": np.sqrt,
    "RECIP": lambda x: np.divide(np.ones((), x.dtype), x),
    "ABS": np.abs,
    "NEG": np.negative,
    "SIN": np.sin,
    "COS": np.cos,
    "TAN": np.tan,
    "SINH": np.sinh,
    "COSH": np.cosh,
    "ASIN": np.arcsin,
    "ACOS": np.arccos,
    "ATAN": np.arctan,
    "ASINH": np.arcsinh,
    "ACOSH": np.arccosh,
    "ATANH": np.arctanh,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ERF": _erf,
    "NOT": np.logical_not,
    "SIGN": np.sign,
    "ROUND": np.rint,
    "ISINF": np.isinf,
    "ISNAN": np.isnan,
}


def _bound(limit: float, x: Array) -> Array:
    """Returns a limit in the type of what is limited; the type's own where it is beyond."""
    if x.dtype.kind in "iu":
        most = np.iinfo(x.dtype)
        return np.asarray(most.max if limit >= most.max else most.min if limit <= most.min else limit, x.dtype)
    return np.asarray(limit, x.dtype)


_ACTIVATIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "RELU": lambda x, a, b: np.maximum(x, 0),
    "SIGMOID": lambda x, a, b: np.asarray(1 / (1 + np.exp(-x)), x.dtype),
    "TANH": lambda x, a, b: np.tanh(x),
    "LEAKY_RELU": lambda x, a, b: np.where(x >= 0, x, x * np.asarray(a, x.dtype)),
    "ELU": lambda x, a, b: np.where(x > 0, x, np.asarray(a * np.expm1(np.minimum(x, 0)), x.dtype)),
    "SELU": lambda x, a, b: np.asarray(b * np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))), x.dtype),
    "SOFTSIGN": lambda x, a, b: x / (1 + np.abs(x)),
    "SOFTPLUS": lambda x, a, b: np.asarray(a * np.logaddexp(np.asarray(b, x.dtype) * x, 0), x.dtype),
    # In this order: where the limits are crossed the lower one wins.
    "CLIP": lambda x, a, b: np.maximum(_bound(a, x), np.minimum(_bound(b, x), x)),
    "HARD_SIGMOID": lambda x, a, b: np.clip(np.asarray(a, x.dtype) * x + np.asarray(b, x.dtype), 0, 1),
    "SCALED_TANH": lambda x, a, b: np.asarray(a * np.tanh(b * x), x.dtype),
    "THRESHOLDED_RELU": lambda x, a, b: np.where(x > np.asarray(a, x.dtype), x, np.zeros((), x.dtype)),
    "GELU_ERF": lambda x, a, b: np.asarray(0.5 * x * (1 + _erf(x / np.asarray(np.sqrt(2), x.dtype)))),
    "GELU_TANH": lambda x, a, b: np.asarray(
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x))), x.dtype
    ),
}


def _elementwise(call: Call) -> Sequence[Array]:
    a, b = wide(call.input(0)), wide(call.input(1))
    if a.ndim != b.ndim:
        raise Malformed(f"its inputs have {a.ndim} and {b.ndim} axes")
    return (_named(_ELEMENTWISE, call["op"])(a, b),)


def _unary(call: Call) -> Sequence[Array]:
    return (_named(_UNARY, call["op"])(wide(call.input(0))),)


def _activation(call: Call) -> Sequence[Array]:
    return (_named(_ACTIVATIONS, call["type"])(wide(call.input(0)), call["alpha"], call["beta"]),)


def _named(table: dict[str, Kernel] | dict[str, Callable[..., Array]], name: str) -> Callable[..., Array]:
    if name not in table:
        raise NotProven(f"{name} is not known")
    return table[name]  # type: ignore[return-value]


def _cast(call: Call) -> Sequence[Array]:
    values, dtype = call.input(0), call.outputs[0].dtype
    if dtype == "int8" and values.dtype.kind not in "biu" and not np.array_equal(np.trunc(wide(values)), wide(values)):
        raise NotProven("TensorRT 8.6 was seen to round what it casts to int8, where ONNX cuts off")
    return (cast(values, dtype),)


def _select(call: Call) -> Sequence[Array]:
    return (np.where(call.input(0).astype(bool), call.input(1), call.input(2)),)


def _prelu(call: Call) -> Sequence[Array]:
    x, slope = wide(call.input(0)), wide(call.input(1))
    return (np.where(x >= 0, x, x * slope),)


def _scale(call: Call) -> Sequence[Array]:
    x = wide(call.input(0))
    shape = {"UNIFORM": (), "ELEMENTWISE": x.shape[1:]}.get(call["mode"])
    if shape is None:
        channel = call["channel_axis"]
        shape = tuple(x.shape[channel] if axis == channel else 1 for axis in range(channel, x.ndim))
    shift, scale, power = (call.weights(name) for name in ("shift", "scale", "power"))
    if scale.size:
        x = x * wide(scale).reshape(shape)
    if shift.size:
        x = x + wide(shift).reshape(shape)
    return (np.power(x, wide(power).reshape(shape)) if power.size and (power != 1).any() else x,)


def _nothing(call: Call) -> Sequence[Array]:
    return ()


KINDS: dict[str, Kernel] = {
    "ELEMENTWISE": _elementwise,
    "UNARY": _unary,
    "ACTIVATION": _activation,
    "CAST": _cast,
    "IDENTITY": _cast,
    "SELECT": _select,
    "PARAMETRIC_RELU": _prelu,
    "SCALE": _scale,
    "ASSERTION": _nothing,
}
