"""Writes poolings whose sizes are rounded up where TensorRT counts or divides otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper

from trtconv.core.target import Target
from trtconv.graph.pooling import axes_of_pool, can_exceed, rounds_up
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.pool_windows import PoolWindow, float_type, ones_of, pad, window_of
from trtconv.passes.spelling.writer import Unwritable, Writer


class PadBeforeAverage(Spelling):
    """Writes the padding of an AveragePool that counts it as a Pad, where sizes are rounded up.

    A last window may reach beyond the padding; what lies there is no padding and counts nowhere. TensorRT 8.6 was seen
    to count it.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,3] x) => (float[1,1,2] y)
        { y = AveragePool <kernel_shape = [3], strides = [2], pads = [1, 0], ceil_mode = 1, count_include_pad = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,3] x) => (float[1,1,2] y) <int64[6] pads = {0, 0, 1, 0, 0, 0}, float zero = {0}> {
          p = Pad <mode = "constant"> (x, pads, zero)
          y = AveragePool <ceil_mode = 1, kernel_shape = [3], strides = [2]> (p)
        }
    """

    name = "pad-before-average"
    ops = frozenset({"AveragePool"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        attributes = scope.columns.attributes[index]
        return rounds_up(attributes) and any(a.name == "count_include_pad" and a.i for a in attributes)

    def write(self, writer: Writer, target: Target) -> str | None:
        attrs = writer.attrs
        kernel, sizes = attrs["kernel_shape"], tuple(writer.shape(writer.input(0)))[2:]
        if len(sizes) != len(kernel) or attrs.get("auto_pad", "NOTSET") != "NOTSET":
            raise Unwritable
        axes = axes_of_pool(attrs, sizes)
        # One that begins in the padding is another matter.
        if can_exceed(attrs) if None in axes else any(axis and axis.rounded_up != axis.count for axis in axes):
            raise Unwritable
        if all(axis and not (axis.size + axis.begin + axis.end - axis.reach) % axis.stride for axis in axes):
            raise Unwritable
        zero = np.zeros((), float_type(writer))
        pads = attrs.get("pads") or [0] * 2 * len(kernel)
        source = pad(writer, writer.input(0), pads[: len(kernel)], pads[len(kernel) :], zero)
        writer.again([source], pads=None, count_include_pad=None)
        return None


class RoundPoolsAtRunTime(Spelling):
    """Writes ceil_mode on dynamic sizes as padding and a crop, where a window might begin in the end padding.

    ONNX leaves out such a window, and TensorRT keeps it. How many there are is computed at run time.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,n] x) => (float[1,1,m] y)
        { y = MaxPool <kernel_shape = [1], strides = [2], ceil_mode = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,n] x) => (float[1,1,m] y)
        <int64[6] pads = {0, 0, 0, 0, 0, 1}, float low = {-inf}, int64[1] zero = {0}, int64[1] one = {1},
         int64[1] two = {2}, int64[1] three = {3}>
        {
          s = Shape (x)  n = Slice (s, two, three, zero)  o = Add (n, one)  count = Div (o, two)
          p = Pad <mode = "constant"> (x, pads, low)  q = MaxPool <kernel_shape = [1], strides = [2]> (p)
          y = Slice (q, zero, count, two)
        }
    """

    name = "round-pools-at-run-time"
    fixes = ("TC612",)
    ops = frozenset({"AveragePool", "LpPool", "MaxPool"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        attributes = scope.columns.attributes[index]
        return rounds_up(attributes) and can_exceed({a.name: helper.get_attribute_value(a) for a in attributes})

    def write(self, writer: Writer, target: Target) -> str | None:
        if None not in writer.shape(writer.input(0)) or writer.attrs.get("auto_pad", "NOTSET") != "NOTSET":
            raise Unwritable
        dtype, window = float_type(writer), window_of(writer)
        if not window.counts or writer.output(1):
            raise Unwritable
        op, source = writer.node.op_type, writer.input(0)
        if op != "AveragePool":
            lowest = np.array(-np.inf if op == "MaxPool" else 0, dtype)
            self._pool(writer, window, window.padded(writer, source, lowest), writer.output())
            return None
        # The mean of what counts, by the share of it in the window.
        padded = window.padded(writer, source, np.zeros((), dtype))
        means, shares = (self._pool(writer, window, name, "") for name in (padded, _counted(writer, window, dtype)))
        writer("Div", means, shares, to=writer.output())
        return None

    @staticmethod
    def _pool(writer: Writer, window: PoolWindow, padded: str, to: str) -> str:
        dropped = ("ceil_mode", "pads", "auto_pad", "count_include_pad", "storage_order")
        attrs: Mapping[str, Any] = {key: value for key, value in writer.attrs.items() if key not in dropped}
        pooled = writer(writer.node.op_type, padded, **attrs)
        return writer.slice(pooled, [0] * len(window.kernel), window.counts, list(window.axes), to=to)


def _counted(writer: Writer, window: PoolWindow, dtype: np.dtype[Any]) -> str:
    """Writes ones where an element counts, in the place of one padded image, and zeros elsewhere."""
    ones, zero = ones_of(writer, dtype), np.zeros((), dtype)
    pads = writer.attrs.get("pads")
    if not (writer.attrs.get("count_include_pad") and pads):
        return window.padded(writer, ones, zero)
    rank = len(window.kernel)
    ones = pad(writer, ones, pads[:rank], pads[rank:], np.ones((), dtype))
    beyond = [end - inside for end, inside in zip(window.ends, pads[rank:], strict=True)]
    return pad(writer, ones, [0] * rank, beyond, zero)
