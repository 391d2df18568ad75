"""Logarithms of sums of exponentials, which TensorRT's parsers write so that large differences become infinite."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer


class ShiftExponentials(Spelling):
    """Takes the largest value off before the exponentials of LogSoftmax and ReduceLogSumExp.

    TensorRT's parsers write LogSoftmax as the logarithm of a softmax, which is 0 where a value lies 104 below the
    largest (17 in float16), so that the result is -inf; and those before 11 ReduceLogSumExp as the logarithm of a sum
    of exponentials, which is inf where a value exceeds 88 (11 in float16).

    Before:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,3] x) => (float[2,3] y) { y = LogSoftmax (x) }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,3] x) => (float[2,3] y) <int64[1] axes = {1}>
        {
          top = ReduceMax <axes = [1]> (x)  low = Sub (x, top)  e = Exp (low)  s = ReduceSum (e, axes)  l = Log (s)
          y = Sub (low, l)
        }
    """

    name = "shift-exponentials"
    ops = frozenset({"LogSoftmax", "ReduceLogSumExp"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return scope.columns.ops[index] == "LogSoftmax" or target.before(11)

    def write(self, writer: Writer, target: Target) -> str | None:
        x, rank = writer.input(0), len(writer.shape(writer.input(0)))
        dtype = writer.dtype(x)
        if dtype.kind != "f" and str(dtype) != "bfloat16":
            raise Unwritable("")
        if writer.node.op_type == "LogSoftmax":
            axes = self._softmax_axes(writer, rank)
            low, sums = self._sums(writer, x, writer.reduce("ReduceMax", x, axes), axes)
            writer("Sub", low, writer("Log", sums), to=writer.output())
            return None
        axes = self._axes(writer, rank)
        # What is infinite stays so: taken off itself it would be no number. float64 is float32 to TensorRT.
        end = np.finfo(np.float16 if dtype == np.float16 else np.float32).max
        ends = [writer.constant(np.asarray(sign * end).astype(dtype)) for sign in (-1, 1)]
        top = writer("Min", writer("Max", writer.reduce("ReduceMax", x, axes), ends[0]), ends[1])
        _, sums = self._sums(writer, x, top, axes)
        if writer.attrs.get("keepdims", 1):
            writer("Add", writer("Log", sums), top, to=writer.output())
        else:
            writer.squeeze(writer("Add", writer("Log", sums), top), axes, to=writer.output())
        return None

    @staticmethod
    def _sums(writer: Writer, x: str, top: str, axes: list[int]) -> tuple[str, str]:
        low = writer("Sub", x, top)
        return low, writer.reduce("ReduceSum", writer("Exp", low), axes)

    @staticmethod
    def _softmax_axes(writer: Writer, rank: int) -> list[int]:
        if writer.opset >= 13:
            return [writer.attrs.get("axis", -1) % rank]
        # Before opset 13 all axes from that one on are one.
        axis = writer.attrs.get("axis", 1)
        return list(range(axis % rank if axis != rank else rank, rank))

    @staticmethod
    def _axes(writer: Writer, rank: int) -> list[int]:
        axes = writer.values(1, "axes").reshape(-1).tolist() if writer.input(1) else list(writer.attrs.get("axes", ()))
        if not axes and writer.attrs.get("noop_with_empty_axes", 0):
            raise Unwritable("")
        return [int(axis) % rank for axis in axes] or list(range(rank))
