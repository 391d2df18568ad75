"""Operators that keep a shape or broadcast shapes, and arithmetic on the elements of small tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trtconv.shapes.lattice.number import Num, combine, larger, lift, select, smaller, truncated_div
from trtconv.shapes.lattice.registry import Inputs, given, like, operator, shape_of, tensor
from trtconv.shapes.lattice.tensor import MAX_ELEMENTS, Tensor, map_elements
from trtconv.shapes.lattice.trial import Node, Opaque, Trial

_SAME = (
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Bernoulli", "BitwiseNot", "Celu", "Cos", "Cosh"),
    *("CumProd", "CumSum", "DynamicQuantizeLinear", "Elu", "Erf", "Exp", "EyeLike", "Gelu", "GroupNormalization"),
    *("Hardmax", "HardSigmoid", "HardSwish", "InstanceNormalization", "IsInf", "IsNaN", "LeakyRelu", "Log"),
    *("LogSoftmax", "LpNormalization", "LRN", "MeanVarianceNormalization", "Mish", "RandomNormalLike"),
    *("RandomUniformLike", "Reciprocal", "Relu", "ReverseSequence", "RotaryEmbedding", "Selu", "Shrink"),
    *("Sigmoid", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Swish", "Tan", "Tanh"),
    *("ThresholdedRelu", "Trilu"),
)
"""Operators whose output has the shape of their first input."""
_BOOL = np.dtype(np.bool_)


@operator(*_SAME)
def _same(trial: Trial, node: Node, inputs: Inputs) -> list[Tensor]:
    source = tensor(inputs)
    if node.op in ("GroupNormalization", "InstanceNormalization") and source.shape is not None:
        _check_channels(trial, source, inputs)
    return [like(source)] + [Tensor([]) for _ in node.outputs[1:]]


@operator("BatchNormalization")
def _batch_normalization(trial: Trial, node: Node, inputs: Inputs) -> list[Tensor]:
    source = tensor(inputs)
    if source.shape is not None and source.rank > 1:
        _check_channels(trial, source, inputs)
    return [like(source)] + [like(tensor(inputs, 3)) for _ in node.outputs[1:]]


def _check_channels(trial: Trial, source: Tensor, inputs: Inputs) -> None:
    scale = given(inputs, 1)
    if scale is None or scale.shape is None or source.shape is None or scale.rank != 1:
        return
    trial.equal(source.shape[1], scale.shape[0], "takes {0} channels with {1} scales")


@operator("LayerNormalization", "RMSNormalization")
def _layer_normalization(trial: Trial, node: Node, inputs: Inputs) -> list[Tensor]:
    source, scale = tensor(inputs), given(inputs, 1)
    if source.shape is not None and scale is not None and scale.shape is not None:
        for axis in range(-min(scale.rank, source.rank), 0):
            if not (scale.shape[axis].constant and scale.shape[axis].value == 1):
                says = f"normalizes size {{0}} with {{1}} weights at axis {axis}"
                trial.equal(source.shape[axis], scale.shape[axis], says)
    return [like(source)] + [Tensor(None) for _ in node.outputs[1:]]


@operator("Dropout")
def _dropout(trial: Trial, node: Node, inputs: Inputs) -> list[Tensor]:
    return [tensor(inputs), like(tensor(inputs), dtype=_BOOL)]


@operator("Identity")
def _identity(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    return tensor(inputs)


@operator("QuantizeLinear", "DequantizeLinear")
def _quantize(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, scale = tensor(inputs), given(inputs, 1)
    blocked = bool(node.attrs.get("block_size", 0))
    if not blocked and source.shape and scale is not None and scale.shape is not None and len(scale.shape) == 1:
        axis = int(node.attrs.get("axis", 1))
        if -source.rank <= axis < source.rank and scale.shape[0].value != 1:
            trial.equal(source.shape[axis], scale.shape[0], f"takes size {{0}} with {{1}} scales at axis {axis}")
    return Tensor(source.shape)


def _cast_value(dtype: np.dtype[Any], source: np.dtype[Any] | None) -> Callable[[Num], Num]:
    is_integer = dtype.kind in "iu" and source is not None and source.kind in "iu"

    def cast(num: Num) -> Num:
        if num.value is None:
            # What is cut off is another number.
            return num if is_integer else Num(None, num.mask)
        if dtype.kind == "f":
            value = np.asarray(num.value).astype(dtype)
            return Num(value if value.ndim else value[()], num.mask)
        if np.asarray(num.value).dtype.kind in "iu" and dtype.kind in "iu":
            return num
        if np.asarray(num.value).dtype.kind == "f":
            value = np.trunc(num.value) if dtype.kind in "iu" else num.value
            value = np.asarray(value).astype(np.int64 if dtype.kind in "iu" else bool)
        else:
            value = np.asarray(num.value).astype(np.int64 if dtype.kind in "iu" else bool)
        return Num(value if value.ndim else value.item(), num.mask)

    return cast


@operator("Cast", "CastLike")
def _cast(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source = tensor(inputs)
    dtype = node.attrs.get("to") if node.op == "Cast" else tensor(inputs, 1).dtype
    if source.data is None or not isinstance(dtype, np.dtype) or dtype.kind not in "iufb":
        return like(source, dtype=dtype if isinstance(dtype, np.dtype) else None)
    return Tensor(source.shape, map_elements(_cast_value(dtype, source.dtype), source.data), dtype)


_ONE: dict[str, Callable[[Any], Any]] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sign": np.sign,
    "Sqrt": np.sqrt,
    "Not": np.logical_not,
}


@operator(*_ONE)
def _unary(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source, function = tensor(inputs), _ONE[node.op]
    if source.data is None:
        return like(source)
    return Tensor(source.shape, map_elements(lambda a: _apply(function, a), source.data), source.dtype)


def _apply(function: Callable[[Any], Any], a: Num) -> Num:
    if a.value is None:
        return Num(None, a.mask)
    value = function(a.value)
    return Num(value, a.mask) if isinstance(value, np.ndarray | np.floating) else lift(np.asarray(value).item())


def _divide(a: Num, b: Num) -> Num:
    if a.value is not None and np.asarray(a.value).dtype.kind == "f":
        with np.errstate(divide="ignore", invalid="ignore"):  # a step between two ends of a grid of one
            return combine(np.divide, a, b)
    return truncated_div(a, b)


def _two(function: Callable[[Any, Any], Any]) -> Callable[[Num, Num], Num]:
    return lambda a, b: combine(function, a, b)


_TWO: dict[str, Callable[[Num, Num], Num]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _divide,
    "Mod": lambda a, b: a % b,
    "Pow": _two(np.power),
    "Equal": _two(np.equal),
    "Greater": _two(np.greater),
    "GreaterOrEqual": _two(np.greater_equal),
    "Less": _two(np.less),
    "LessOrEqual": _two(np.less_equal),
    "And": _two(np.logical_and),
    "Or": _two(np.logical_or),
    "Xor": _two(np.logical_xor),
    "Max": larger,
    "Min": smaller,
    "Sum": lambda a, b: a + b,
}
_TO_BOOL = frozenset(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"])


@operator(*_TWO, "Mean", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def _variadic(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    operands = [t for t in inputs if t is not None]
    shape = trial.broadcast([shape_of(operands, i) for i in range(len(operands))])
    dtype = _BOOL if node.op in _TO_BOOL else operands[0].dtype
    # With fmod the sign is the dividend's; hardly a shape is computed so.
    function = None if node.attrs.get("fmod", 0) else _TWO.get(node.op)
    parts = [t.data for t in operands]
    if function is None or any(part is None for part in parts) or _too_many(shape):
        return Tensor(shape, None, dtype)
    data = parts[0]
    for part in parts[1:]:
        data = map_elements(function, data, part)  # type: ignore[arg-type]
    return Tensor(shape, data, dtype)


def _too_many(shape: list[Num]) -> bool:
    sizes = [num.value for num in shape]
    return any(not isinstance(n, int) for n in sizes) or math.prod(sizes) > MAX_ELEMENTS


@operator("PRelu")
def _prelu(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    trial.broadcast([shape_of(inputs), shape_of(inputs, 1)])
    return like(tensor(inputs))


@operator("Clip")
def _clip(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    source = tensor(inputs)
    data = source.data
    for index, function in ((1, larger), (2, smaller)):
        bound = given(inputs, index)
        if bound is None or data is None:
            continue
        data = None if bound.data is None else map_elements(function, data, bound.data)
    return Tensor(source.shape, None if {"min", "max"} & set(node.attrs) else data, source.dtype)


@operator("Where")
def _where(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    condition, a, b = (tensor(inputs, i) for i in range(3))
    shape = trial.broadcast([shape_of(inputs, i) for i in range(3)])
    if condition.data is None or a.data is None or b.data is None or _too_many(shape):
        return Tensor(shape, None, a.dtype)
    return Tensor(shape, map_elements(select, condition.data, a.data, b.data), a.dtype)


@operator("If", "Loop", "Scan")
def _body(trial: Trial, node: Node, inputs: Inputs) -> Tensor:
    raise Opaque("its body depends on values that are known only at run time")
