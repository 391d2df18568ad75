"""Writes products of integers as products of floats that hold their sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.graph.types import INTEGERS
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_EXACT = 2**24
"""float32 holds every integer below."""
_MOST_PRODUCTS = 2**24
"""Of integers, at most."""
_USUAL_SIZE = 16
"""Of an axis whose size is known only at run time, to see whether there are too many."""
_MOST = 255
"""The largest magnitude of a byte less its zero point."""


class MultiplyInFloat(Spelling):
    """Writes ConvInteger and MatMulInteger that have no quantised form as float operators that are exact.

    Those whose weight or zero points come at run time, as in models that are quantised dynamically. A product of two
    bytes less their zero points is at most 255 times 255, so that sums of up to 258 are below 2**24; constant weights
    say nearer how many. Longer sums are of several products, which are added as integers.

    Before:
        <ir_version: 8, opset_import: ["": 13]>
        g (uint8[2,3] a, uint8[3,2] b) => (int32[2,2] y) { y = MatMulInteger (a, b) }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (uint8[2,3] a, uint8[3,2] b) => (int32[2,2] y)
        { c = Cast <to = 1> (a)  d = Cast <to = 1> (b)  p = MatMul (c, d)  y = Cast <to = 6> (p) }
    """

    name = "multiply-in-float"
    fixes = ("TC310",)
    # Nodes that have a quantised form have it by now.
    ops = frozenset({"ConvInteger", "MatMulInteger"})

    def write(self, writer: Writer, target: Target) -> str | None:
        conv = writer.node.op_type == "ConvInteger"
        ranks = [len(writer.shape(writer.input(slot))) for slot in (0, 1)]
        if min(ranks) < (3 if conv else 1):
            raise Unwritable(f"its operands have {ranks[0]} and {ranks[1]} axes")
        axes = (1, 1) if conv else (ranks[0] - 1, max(ranks[1] - 2, 0))
        steps = self._shifted(writer, 0, ranks[0], conv)
        weight: Any = _constant_weight(writer, ranks[1], conv)
        sums = _sums(writer, weight, axes[1], conv)
        if weight is None:
            weight = self._shifted(writer, 1, ranks[1], conv)
        lengths = _lengths(sums)
        if len(lengths) == 1:
            writer.cast(_product(writer, conv, steps, weight), np.int32, to=writer.output())
            return None
        if writer.attrs.get("group", 1) != 1:
            raise Unwritable(f"its sums may be beyond {_EXACT}, below which float32 is exact")
        weights = (
            writer.split(weight, lengths, axes[1])
            if isinstance(weight, str)
            else np.split(weight, np.cumsum(lengths)[:-1], axes[1])
        )
        total = ""
        for number, (part, taps) in enumerate(zip(writer.split(steps, lengths, axes[0]), weights, strict=True), 1):
            whole = writer.cast(_product(writer, conv, part, taps), np.int32)
            total = (
                writer("Add", total, whole, to=writer.output() if number == len(lengths) else "") if total else whole
            )
        return f"{writer.node.op_type} written as the sum of {len(lengths)} float products"

    @staticmethod
    def _shifted(writer: Writer, slot: int, rank: int, conv: bool) -> str:
        """Returns an input less its zero point, in float32."""
        steps, point = writer.cast_or_fold(writer.input(slot), np.float32), writer.input(slot + 2)
        if not point:
            return steps
        zero = writer.cast_or_fold(point, np.float32)
        if len(writer.shape(point)) == 1 and writer.shape(point) != (1,):
            zero = writer.reshape(zero, _beside(slot, rank, conv))
        return writer("Sub", steps, zero)


def _beside(slot: int, rank: int, conv: bool) -> list[int]:
    """The shape of zero points: one for each row of the first matrix, column of the second, kernel of a convolution."""
    rest = [1] * (rank - 1) if conv else [1] if slot == 0 else []
    return [-1, *rest]


def _constant_weight(writer: Writer, rank: int, conv: bool) -> NDArray[np.float32] | None:
    """Returns a constant weight less its zero point; None where either comes at run time."""
    weight, point = _constant(writer, 1), _constant(writer, 3)
    if weight is None or (point is None and writer.input(3)):
        return None
    if point is None:
        return weight
    zero = point.reshape(_beside(1, rank, conv)) if point.ndim == 1 and point.size > 1 else point
    sizes = (1,) * (weight.ndim - zero.ndim) + zero.shape
    if len(sizes) > weight.ndim or any(size not in (1, whole) for size, whole in zip(sizes, weight.shape, strict=True)):
        raise Unwritable(f"its zero points {list(point.shape)} are not those of a weight {list(weight.shape)}")
    return weight - zero


def _constant(writer: Writer, slot: int) -> NDArray[np.float32] | None:
    values = writer.scope.values(writer.input(slot)) if writer.input(slot) else None
    return None if values is None else values.astype(np.float32)


def _product(writer: Writer, conv: bool, steps: str, weight: Any) -> str:
    product: str = writer("Conv" if conv else "MatMul", steps, weight, **writer.attrs)
    return product


def _sums(writer: Writer, weight: NDArray[np.float32] | None, axis: int, conv: bool) -> NDArray[np.float64]:
    """Returns what each step along the axis that is summed adds at most to each element: (steps, elements)."""
    if weight is not None:
        steps = np.moveaxis(np.abs(weight).astype(np.float64), axis, 0)
        return _MOST * (steps.sum(tuple(range(2, steps.ndim))) if conv else steps.reshape(len(steps), steps[:1].size))
    shape = writer.shape(writer.input(1))
    sizes = [size for size in (shape[1:] if conv else shape[axis : axis + 1]) if size is not None]
    if len(sizes) != (len(shape) - 1 if conv else 1):
        raise Unwritable(f"its sums may be beyond {_EXACT}, below which float32 is exact")
    return np.full((sizes[0], 1), float(_MOST * _MOST * np.prod(sizes[1:])))


def _lengths(sums: NDArray[np.float64]) -> Sequence[int]:
    """Returns how many steps at a time make sums that float32 holds."""
    lengths, total = [0], np.zeros(sums.shape[1:])
    for step in sums:
        total = total + step
        if total.max(initial=0) >= _EXACT and lengths[-1]:
            lengths.append(0)
            total = step
        if total.max(initial=0) >= _EXACT:
            raise Unwritable(f"its sums may be beyond {_EXACT}, below which float32 is exact")
        lengths[-1] += 1
    return lengths


class SumIntegerProducts(Spelling):
    """Writes MatMul of int32 and int64 as products that are summed.

    TensorRT multiplies matrices of floats alone, and a float holds no product of large integers.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (int64[2,3] a, int64[3,4] b) => (int64[2,4] y) { y = MatMul (a, b) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (int64[2,3] a, int64[3,4] b) => (int64[2,4] y)
        <int64[1] last = {2}, int64[1] first = {0}, int64[1] axis = {1}>
        { c = Unsqueeze (a, last)  d = Unsqueeze (b, first)  p = Mul (c, d)  y = ReduceSum <keepdims = 0> (p, axis) }
    """

    name = "sum-integer-products"
    ops = frozenset({"MatMul"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return scope.dtype(scope.columns.inputs[index][0]) in INTEGERS

    def write(self, writer: Writer, target: Target) -> str | None:
        names = [writer.input(slot) for slot in (0, 1)]
        shapes = [writer.shape(name) for name in names]
        sizes = [tuple(_USUAL_SIZE if size is None else size for size in shape) for shape in shapes]
        batch = np.broadcast_shapes(sizes[0][:-2], sizes[1][:-2])
        products = math.prod((*batch, *sizes[0][-2:], *sizes[1][1:][-1:]))
        if products > _MOST_PRODUCTS:
            raise Unwritable(f"it would hold {products} products at once")
        # A vector is a row of the first operand, and a column of the second.
        vectors = [place for place, shape in enumerate(shapes) if len(shape) == 1]
        names = [writer.unsqueeze(name, [place]) if place in vectors else name for place, name in enumerate(names)]
        ranks = [max(len(shape), 2) for shape in shapes]
        left, right = writer.unsqueeze(names[0], [ranks[0]]), writer.unsqueeze(names[1], [ranks[1] - 2])
        product = writer("Mul", left, right)
        sums = writer.reduce("ReduceSum", product, [max(ranks) - 1], keep=False, to="" if vectors else writer.output())
        if vectors:
            writer.squeeze(sums, [max(ranks) - 2 + place for place in vectors], to=writer.output())
        return None
