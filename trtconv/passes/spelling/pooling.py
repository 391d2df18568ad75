"""Writes poolings that TensorRT lacks tap by tap."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.pool_windows import PoolWindow, float_type, ones_of, window_of
from trtconv.passes.spelling.sizes import Number, plus, positions, sizes_of, spread, times
from trtconv.passes.spelling.writer import Unwritable, Writer

_MOST_TAPS = 1024


class PoolByTaps(Spelling):
    """Writes dilated poolings, LpPool of one axis or other norms, and MaxPool with indices by taps of their windows.

    Each tap of the window is a Slice of the padded input with the stride of the pooling; their largest, sum or mean is
    the result.

    Before:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[1,1,4] x) => (float[1,1,2] y) { y = MaxPool <kernel_shape = [2], dilations = [2]> (x) }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[1,1,4] x) => (float[1,1,2] y) <int64[1] a = {0}, int64[1] b = {2}, int64[1] c = {4}, int64[1] s = {1}>
        { p = Slice (x, a, b, b, s)  q = Slice (x, b, c, b, s)  y = Max (p, q) }
    """

    name = "pool-by-taps"
    ops = frozenset({"AveragePool", "LpPool", "MaxPool"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        attrs = {attribute.name: attribute for attribute in columns.attributes[index]}
        if "dilations" in attrs and any(dilation != 1 for dilation in attrs["dilations"].ints):
            return True
        if columns.ops[index] == "LpPool":
            # A parser refuses those of one axis, and that of 8.6 ends the process at them.
            of_one_axis = "kernel_shape" in attrs and len(attrs["kernel_shape"].ints) == 1
            return of_one_axis or ("p" in attrs and attrs["p"].i not in (1, 2))
        return columns.ops[index] == "MaxPool" and any(columns.outputs[index][1:])

    def write(self, writer: Writer, target: Target) -> str | None:
        taps = math.prod(writer.attrs["kernel_shape"])
        if taps > _MOST_TAPS:
            raise Unwritable(f"its window has {taps} elements")
        dtype, window = float_type(writer), window_of(writer)
        if writer.node.op_type == "MaxPool":
            self._max(writer, window, dtype)
        else:
            self._sum(writer, window, dtype)
        return None

    @staticmethod
    def _max(writer: Writer, window: PoolWindow, dtype: np.dtype[Any]) -> None:
        taps = window.slices(writer, window.padded(writer, writer.input(0), np.array(-np.inf, dtype)))
        if not writer.output(1):
            writer("Max", *taps, to=writer.output())
            return
        rank = len(window.kernel) + 2
        stacked = writer("Concat", *(writer.unsqueeze(tap, [rank]) for tap in taps), axis=rank)
        writer.reduce("ReduceMax", stacked, [rank], keep=False, to=writer.output())
        places = writer("ArgMax", stacked, axis=rank, keepdims=0)
        _indices(writer, window, places)

    @staticmethod
    def _sum(writer: Writer, window: PoolWindow, dtype: np.dtype[Any]) -> None:
        name, norm = writer.input(0), writer.attrs.get("p", 2)
        power = writer.node.op_type == "LpPool"
        if power:
            name = writer("Pow", writer("Abs", name), np.array(norm, dtype))
        total = writer("Sum", *window.slices(writer, window.padded(writer, name, np.zeros((), dtype))))
        if power:
            writer("Pow", total, np.array(1 / norm, dtype), to=writer.output())
            return
        writer("Div", total, _hits(writer, window, dtype), to=writer.output())


def _hits(writer: Writer, window: PoolWindow, dtype: np.dtype[Any]) -> Any:
    """Returns by how many elements each window is divided: those of the input, or of the padding too."""
    with_pads = bool(writer.attrs.get("count_include_pad"))
    if None not in window.sizes:
        return _known_hits(window, with_pads, writer).astype(dtype)
    if not window.counts and (with_pads or not window.is_padded):
        return np.array(math.prod(window.kernel), dtype)
    if with_pads and window.is_padded:
        raise Unwritable("its padding counts, and its sizes are rounded up at run time")
    ones = window.padded(writer, ones_of(writer, dtype), np.zeros((), dtype))
    return writer("Sum", *window.slices(writer, ones))


def _known_hits(window: PoolWindow, with_pads: bool, writer: Writer) -> Any:
    total: Any = np.ones((1, 1))
    ends = writer.attrs.get("pads", [0] * 2 * len(window.kernel))[len(window.kernel) :]
    if writer.attrs.get("auto_pad", "NOTSET").startswith("SAME"):
        ends = window.ends
    for axis, kernel in enumerate(window.kernel):
        starts = np.arange(window.count(axis) or 0) * window.strides[axis] - window.begins[axis]
        places = starts[:, None] + np.arange(kernel) * window.dilations[axis]
        begin, end = 0, window.sizes[axis] or 0
        if with_pads:
            begin, end = -window.begins[axis], end + max(ends[axis], 0)
        total = total[..., None] * ((places >= begin) & (places < end)).sum(axis=1)
    return total


def _indices(writer: Writer, window: PoolWindow, tap: str) -> None:
    """Writes where in the whole input the largest of each window lies, from which tap it is."""
    name = writer.input(0)
    batch, channels, *sizes = sizes_of(writer, name, writer.shape(name))
    _, _, *counts = sizes_of(writer, tap, [1, 1, *map(window.count, range(len(sizes)))])
    # How many elements one step is: of the axes behind it, or with a storage_order of those in front of it.
    by_columns = writer.attrs.get("storage_order")
    steps = [times(writer, *(sizes[:axis] if by_columns else sizes[axis + 1 :])) for axis in range(len(sizes))]
    taps = np.array(window.taps(), np.int64)
    start = times(writer, channels, spread(writer, positions(writer, batch), 1))
    start = times(writer, plus(writer, start, positions(writer, channels)), *sizes)
    offset: Number = 0
    for axis, step in enumerate(steps):
        offset = plus(writer, offset, times(writer, taps[:, axis], step))
        along = times(writer, positions(writer, counts[axis]), window.strides[axis])
        along = times(writer, plus(writer, along, -window.begins[axis]), step)
        start = plus(writer, spread(writer, start, axis + 2), along)
    writer("Add", writer("Gather", offset, tap, axis=0), start, to=writer.output(1))
