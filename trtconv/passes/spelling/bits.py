"""Writes operators on bits in the arithmetic of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from trtconv.core.target import Target
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.holders import holder, narrowed, widened, wrapped
from trtconv.passes.spelling.writer import Writer


class ShiftBits(Spelling):
    """Writes BitShift as Mul and Div by powers of two.

    Before:
        <ir_version: 8, opset_import: ["": 13]>
        g (uint8[4] x, uint8[4] n) => (uint8[4] y) { y = BitShift <direction = "LEFT"> (x, n) }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (uint8[4] x, uint8[4] n) => (uint8[4] y) <int32[9] powers = {1, 2, 4, 8, 16, 32, 64, 128, 0}, int32 m = {256}>
        {
          a = Cast <to = 6> (x)  b = Cast <to = 6> (n)  p = Gather (powers, b)
          q = Mul (a, p)  r = Mod (q, m)  y = Cast <to = 2> (r)
        }
    """

    name = "shift-bits"
    ops = frozenset({"BitShift"})

    def write(self, writer: Writer, target: Target) -> str | None:
        dtype = writer.dtype(writer.input(0))
        wide = holder(dtype, target)
        width = 8 * dtype.itemsize
        x = widened(writer, writer.input(0), target)
        steps = widened(writer, writer.input(1), target)
        # Beyond the width, and of negative shifts, nothing is left but the sign.
        beyond = writer(
            "Or", writer("Less", steps, np.array(0, wide)), writer("Greater", steps, np.array(width - 1, wide))
        )
        steps = writer("Where", beyond, np.array(width, wide), steps)
        if writer.attrs.get("direction") == "LEFT":
            powers = [_wrap(2**step, wide) for step in range(width)] + [0]
            shifted = writer("Mul", x, writer("Gather", np.array(powers, wide), steps, axis=0))
            result = wrapped(writer, shifted, dtype, wide)
        else:
            result = self._right(writer, x, steps, dtype, wide)
        if wide == dtype:
            writer("Identity", result, to=writer.output())
        else:
            narrowed(writer, result, writer.output(), dtype, target)
        return None

    @staticmethod
    def _right(writer: Writer, x: str, steps: str, dtype: np.dtype[Any], wide: np.dtype[Any]) -> str:
        """Divides, rounding down: an arithmetic shift."""
        width = 8 * dtype.itemsize
        # The highest power may be one that the type does not have; there only the sign is left too.
        last = width - 1 if 2 ** (width - 1) > np.iinfo(wide).max else width
        powers = np.array([2**step if step < last else 1 for step in range(width + 1)], wide)
        by = writer("Gather", powers, steps, axis=0)
        rest = writer("Mod", x, by)
        down = writer("Div", writer("Sub", x, rest), by)
        sign = writer("Where", writer("Less", x, np.array(0, wide)), np.array(-1, wide), np.array(0, wide))
        return writer("Where", writer("Less", steps, np.array(last, wide)), down, sign)


class CombineBits(Spelling):
    """Writes BitwiseAnd, BitwiseOr, BitwiseXor and BitwiseNot bit by bit, along an axis of their own.

    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (int32[4] x) => (int32[4] y) { y = BitwiseNot (x) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (int32[4] x) => (int32[4] y) <int32 one = {-1}> { y = Sub (one, x) }
    """

    name = "combine-bits"
    ops = frozenset({"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"})

    def write(self, writer: Writer, target: Target) -> str | None:
        dtype = writer.dtype(writer.input(0))
        if writer.node.op_type == "BitwiseNot" and dtype == np.int32:
            # No division is needed, which 8.6 does in floats.
            writer("Sub", np.array(-1, dtype), writer.input(0), to=writer.output())
            return None
        wide = holder(dtype, target)
        x = widened(writer, writer.input(0), target)
        if writer.node.op_type == "BitwiseNot":
            whole = np.iinfo(dtype).max if dtype.kind == "u" else -1
            result = writer("Sub", np.array(whole, wide), x)
        else:
            ranks = [len(writer.shape(name)) for name in writer.node.input]
            other = widened(writer, writer.input(1), target)
            result = self._by_bits(writer, [x, other], ranks, dtype, wide)
        if wide == dtype:
            writer("Identity", result, to=writer.output())
        else:
            narrowed(writer, result, writer.output(), dtype, target)
        return None

    @staticmethod
    def _by_bits(writer: Writer, names: list[str], ranks: list[int], dtype: np.dtype[Any], wide: np.dtype[Any]) -> str:
        # The sign of a signed type is apart: without it every number is at least 0, and divided rounding down.
        width = 8 * dtype.itemsize - (dtype.kind == "i")
        powers = np.array([2**step for step in range(width)], wide)
        lowest = np.array(np.iinfo(dtype).min, wide)
        bits, signs = [], []
        for name, rank in zip(names, ranks, strict=True):
            negative = writer("Less", name, np.array(0, wide))
            signs.append(negative)
            positive = writer("Where", negative, writer("Sub", name, lowest), name) if dtype.kind == "i" else name
            column = writer.unsqueeze(positive, [rank])
            bits.append(writer("Mod", writer("Div", column, powers), np.array(2, wide)))
        op = {"BitwiseAnd": "And", "BitwiseOr": "Or", "BitwiseXor": "Xor"}[writer.node.op_type]
        one = np.array(1, wide)
        both = writer.cast(writer(op, *(writer("Equal", bit, one) for bit in bits)), wide)
        whole = writer.reduce("ReduceSum", writer("Mul", both, powers), [max(ranks)], keep=False)
        if dtype.kind == "u":
            return whole
        return writer("Where", writer(op, *signs), writer("Add", whole, lowest), whole)


def _wrap(value: int, dtype: np.dtype[Any]) -> int:
    """Returns what is left of a number in a signed type."""
    half = 2 ** (8 * dtype.itemsize - 1)
    return int((value + half) % (2 * half) - half)
