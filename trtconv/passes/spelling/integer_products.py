"""Writes products of integers as products of floats that hold their sums."""

from __future__ import annotations

import math

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_EXACT = 2**24
"""float32 holds every integer below."""


class MultiplyInFloat(Spelling):
    """Writes ConvInteger and MatMulInteger whose weight comes at run time as float operators that are exact.

    A product of two bytes less their zero points is at most 255 times 255, so that sums of up to 258 are below 2**24.

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
    ops = frozenset({"ConvInteger", "MatMulInteger"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        # Weights that are constant are quantised ones, which have a pass of their own.
        return scope.constant(scope.columns.inputs[index][1]) is None

    def write(self, writer: Writer, target: Target) -> str | None:
        conv = writer.node.op_type == "ConvInteger"
        shapes = [writer.shape(writer.input(slot)) for slot in (0, 1)]
        taps = shapes[1][1:] if conv else shapes[1][-2:][:1]
        sizes = [size for size in taps if size is not None]
        if len(sizes) != len(taps) or math.prod(sizes) * 255 * 255 >= _EXACT:
            raise Unwritable(f"its sums may be beyond {_EXACT}, below which float32 is exact")
        parts = [self._shifted(writer, slot, shapes[slot], conv) for slot in (0, 1)]
        product = writer("Conv" if conv else "MatMul", *parts, **writer.attrs)
        writer.cast(product, np.int32, to=writer.output())
        return None

    @staticmethod
    def _shifted(writer: Writer, slot: int, shape: tuple[int | None, ...], conv: bool) -> str:
        """Returns an input less its zero point, in float32."""
        steps, point = writer.cast(writer.input(slot), np.float32), writer.input(slot + 2)
        if not point:
            return steps
        zero = writer.cast(point, np.float32)
        if len(writer.shape(point)) == 1 and writer.shape(point) != (1,):
            # One for each row of the first matrix, each column of the second, each kernel of a convolution.
            rest = [1] * (len(shape) - 1) if conv else [1] if slot == 0 else []
            zero = writer.reshape(zero, [-1, *rest])
        return writer("Sub", steps, zero)
