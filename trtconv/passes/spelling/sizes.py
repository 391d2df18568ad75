"""Arithmetic on sizes, of which some are known and others only at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from trtconv.passes.spelling.writer import Writer

Size = int | str
"""A number, or the scalar of int64 that has it at run time."""
Number = Size | NDArray[Any]
"""One number or several, int64: as they are, or the tensor that has them."""


def sizes_of(writer: Writer, name: str, sizes: Sequence[int | None]) -> list[Size]:
    """Returns the sizes of a tensor, those that are None as scalars of the run time."""
    if None not in sizes:
        return [size for size in sizes if size is not None]
    shape = writer("Shape", name)
    return [
        writer("Gather", shape, np.array(axis, np.int64), axis=0) if size is None else size
        for axis, size in enumerate(sizes)
    ]


def times(writer: Writer, *factors: Number) -> Number:
    """Returns the product of numbers; computed at once where all are known."""
    product: Number = 1
    for factor in factors:
        product = _combined(writer, "Mul", product, factor)
    return product


def plus(writer: Writer, *terms: Number) -> Number:
    """Returns the sum of numbers; computed at once where all are known."""
    total: Number = 0
    for term in terms:
        total = _combined(writer, "Add", total, term)
    return total


def positions(writer: Writer, count: Size) -> Number:
    """Returns the numbers from 0 to below a size."""
    if isinstance(count, str):
        return writer("Range", np.array(0, np.int64), count, np.array(1, np.int64))
    return np.arange(count, dtype=np.int64)


def spread(writer: Writer, numbers: Number, axis: int) -> Number:
    """Returns numbers with an axis of size 1 more, at this place."""
    if isinstance(numbers, str):
        return writer.unsqueeze(numbers, [axis])
    return np.expand_dims(numbers, axis)


def joined(writer: Writer, numbers: Sequence[Number]) -> str:
    """Returns the tensor of several single numbers."""
    if all(isinstance(number, int) for number in numbers):
        return writer.constant(numbers, np.int64)
    parts = [
        writer.unsqueeze(number, [0]) if isinstance(number, str) else writer.constant([number], np.int64)
        for number in numbers
    ]
    return writer("Concat", *parts, axis=0)


def filled(writer: Writer, shape: str, value: int, dtype: np.dtype[Any]) -> str:
    """Returns a tensor of a shape whose elements are all one number."""
    code = helper.np_dtype_to_tensor_dtype(dtype)
    return writer("ConstantOfShape", shape, value=helper.make_tensor("value", code, [1], np.full(1, value, dtype)))


def _combined(writer: Writer, op: str, one: Number, other: Number) -> Number:
    neutral = 1 if op == "Mul" else 0
    for number, rest in ((one, other), (other, one)):
        if isinstance(number, int) and number == neutral:
            return rest
    if isinstance(one, str) or isinstance(other, str):
        return writer(
            op, *(number if isinstance(number, str) else np.asarray(number, np.int64) for number in (one, other))
        )
    return one * other if op == "Mul" else one + other
