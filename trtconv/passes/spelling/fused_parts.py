"""What the operators that ONNX Runtime fuses are made of: sums, activations, norms, products of integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trtconv.passes.spelling.writer import Unwritable, Writer

_T = TypeVar("_T", int, float, str)
LAYER_NORM_OPSET = 17
"""In which ONNX has LayerNormalization."""
SKIP_EPSILON = 1e-12
"""What the norms of sums add to a variance where the node does not say."""
_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ()),
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
}
"""Activations, and what their parameters are in the order in which fused operators have them."""


def option(writer: Writer, name: str, default: _T) -> _T:
    """Returns an attribute of a node; raises `Unwritable` where it is of another type than its default."""
    value = writer.attrs.get(name, default)
    if not isinstance(value, type(default)):
        raise Unwritable(f"its attribute {name} is of the wrong type")
    return value


def type_of(writer: Writer, slots: Sequence[int] = (0,)) -> np.dtype[Any]:
    """Returns the type that some inputs share, of the first of which it is known.

    Raises:
        Unwritable: It is known of none.
    """
    names = [name for name in map(writer.input, slots) if name]
    return writer.dtype(next(filter(writer.scope.dtype, names), names[0]))


def floats_like(writer: Writer, *values: float, slots: Sequence[int] = (0, 1)) -> list[NDArray[Any]]:
    """Returns numbers in the type of a node's inputs."""
    dtype = type_of(writer, slots)
    return [np.array(value, dtype) for value in values]


def sum_of(writer: Writer, slot: int, bias: int) -> str:
    """Returns an input, with a bias where there is one."""
    x, added = writer.input(slot), writer.input(bias)
    return writer("Add", x, added) if added else x


def activation(writer: Writer, name: str, parameters: Sequence[float]) -> None:
    """Applies the activation that a fused node names, and makes the node's output."""
    op = option(writer, "activation", "")
    names = _ACTIVATIONS.get(op)
    if names is None or (op == "Clip" and len(parameters) < len(names)):
        raise Unwritable(f"what its activation {op!r} computes is not known")
    if op == "Clip":
        limits = (np.array(value, type_of(writer, (0, 1))) for value in parameters)
        writer(op, name, *limits, to=writer.output())
        return
    attrs: dict[str, Any] = dict(zip(names, map(float, parameters), strict=False))
    writer(op, name, to=writer.output(), **attrs)


def normalized(writer: Writer, x: str, scale: str, bias: str, to: str, epsilon: float | None = None) -> None:
    """Writes a layer normalization over the last axis."""
    if epsilon is None:
        epsilon = option(writer, "epsilon", SKIP_EPSILON)
    if writer.opset >= LAYER_NORM_OPSET:
        writer("LayerNormalization", x, scale, *([bias] if bias else []), to=to, axis=-1, epsilon=epsilon)
        return
    x, dtype = _in_single(writer, x, scale)
    centred = writer("Sub", x, writer.reduce("ReduceMean", x, [-1]))
    normal = _divided(writer, centred, epsilon)
    scaled = writer("Mul", _back(writer, normal, dtype), scale, to="" if bias else to)
    if bias:
        writer("Add", scaled, bias, to=to)


def root_normalized(writer: Writer, x: str, scale: str, to: str, epsilon: float) -> None:
    """Divides by the root of the mean of squares over the last axis."""
    x, dtype = _in_single(writer, x, scale)
    normal = _divided(writer, x, epsilon)
    writer("Mul", _back(writer, normal, dtype), scale, to=to)


def _in_single(writer: Writer, x: str, scale: str) -> tuple[str, np.dtype[Any]]:
    """Returns a tensor in float32 where its type, that of its scale, is narrower; and the type."""
    dtype = writer.dtype(scale)
    return (writer.cast(x, np.float32) if dtype.itemsize < 4 else x), dtype


def _back(writer: Writer, name: str, dtype: np.dtype[Any]) -> str:
    return writer.cast(name, dtype) if dtype.itemsize < 4 else name


def _divided(writer: Writer, x: str, epsilon: float) -> str:
    mean = writer.reduce("ReduceMean", writer("Mul", x, x), [-1])
    return writer("Div", x, writer("Sqrt", writer("Add", mean, np.array(epsilon, np.float32))))


def matmul_of_integers(
    writer: Writer, a: str, b: str, a_scale: str, b_scale: str, a_zero: str, b_zero: str, bias: str, *, to: str
) -> None:
    """Writes the product of two integer matrices in units of their scales; "" for zero points that are left out."""
    zeros = [a_zero, b_zero] if b_zero else [a_zero] if a_zero else []
    product = writer("MatMulInteger", a, b, *zeros)
    unit = writer("Mul", a_scale, b_scale)
    real = writer("Mul", writer.cast(product, np.float32), unit, to="" if bias else to)
    if bias:
        writer("Add", real, bias, to=to)
