"""Writes poolings that TensorRT lacks tap by tap."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.pooling import axes_of_pool
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_MOST_TAPS = 1024


@dataclasses.dataclass(frozen=True)
class _Window:
    """The taps of a pooling.

    Args:
        kernel: Taps by axis.
        dilations: Steps between them.
        strides: Steps between windows.
        begins: Padding in front.
        sizes: Of the input.
        counts: Windows by axis.
    """

    kernel: tuple[int, ...]
    dilations: tuple[int, ...]
    strides: tuple[int, ...]
    begins: tuple[int, ...]
    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """Padding behind, as much as the last window needs."""
        return tuple(
            max(0, (count - 1) * stride + (kernel - 1) * dilation + 1 - begin - size)
            for count, stride, kernel, dilation, begin, size in zip(
                self.counts, self.strides, self.kernel, self.dilations, self.begins, self.sizes, strict=True
            )
        )

    def taps(self) -> list[tuple[int, ...]]:
        """Returns the offsets of all taps, row by row."""
        steps = zip(self.kernel, self.dilations, strict=True)
        return list(itertools.product(*([step * tap for tap in range(count)] for count, step in steps)))

    def slices(self, writer: Writer, padded: str) -> list[str]:
        """Writes for each tap what it sees of the padded input."""
        axes = range(2, 2 + len(self.kernel))
        reach = [(count - 1) * stride + 1 for count, stride in zip(self.counts, self.strides, strict=True)]
        return [
            writer.slice(padded, tap, [t + r for t, r in zip(tap, reach, strict=True)], list(axes), self.strides)
            for tap in self.taps()
        ]


def window_of(writer: Writer) -> _Window:
    """Returns the taps of a pooling node; raises `Unwritable` where sizes are not known."""
    attrs = writer.attrs
    kernel = tuple(attrs["kernel_shape"])
    sizes = writer.sizes(writer.input(0))[2:]
    if len(sizes) != len(kernel):
        raise Unwritable("its input has other axes than its kernel")
    if math.prod(kernel) > _MOST_TAPS:
        raise Unwritable(f"its window has {math.prod(kernel)} elements")
    ones = (1,) * len(kernel)
    dilations, strides = tuple(attrs.get("dilations", ones)), tuple(attrs.get("strides", ones))
    mode = attrs.get("auto_pad", "NOTSET")
    axes = [axis for axis in axes_of_pool({**attrs, "pads": None} if mode != "NOTSET" else attrs, sizes) if axis]
    if mode.startswith("SAME"):
        counts = tuple(-(-axis.size // axis.stride) for axis in axes)
        whole = [max(0, (count - 1) * a.stride + a.reach - a.size) for count, a in zip(counts, axes, strict=True)]
        begins = tuple(pads // 2 if mode == "SAME_UPPER" else pads - pads // 2 for pads in whole)
    else:
        begins = tuple(axis.begin for axis in axes)
        rounded = attrs.get("ceil_mode")
        counts = tuple(
            axis.count if rounded else (axis.size + axis.begin + axis.end - axis.reach) // axis.stride + 1
            for axis in axes
        )
    return _Window(kernel, dilations, strides, begins, sizes, counts)


def _padded(writer: Writer, name: str, window: _Window, value: Any) -> str:
    if not any((*window.begins, *window.ends)):
        return name
    pads = [0, 0, *window.begins, 0, 0, *window.ends]
    return writer("Pad", name, np.array(pads, np.int64), value, mode="constant")


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
        if writer.opset < 11:
            raise Unwritable(f"opset {writer.opset} has no Pad with pads as an input")
        dtype = writer.dtype(writer.input(0))
        if dtype.kind in "iub":
            raise Unwritable(f"its input is of {dtype}")
        window = window_of(writer)
        if writer.node.op_type == "MaxPool":
            self._max(writer, window, dtype)
        else:
            self._sum(writer, window, dtype)
        return None

    @staticmethod
    def _max(writer: Writer, window: _Window, dtype: np.dtype[Any]) -> None:
        lowest = np.array(-np.inf, dtype)
        taps = window.slices(writer, _padded(writer, writer.input(0), window, lowest))
        if not writer.output(1):
            writer("Max", *taps, to=writer.output())
            return
        rank = len(window.kernel) + 2
        stacked = writer("Concat", *(writer.unsqueeze(tap, [rank]) for tap in taps), axis=rank)
        writer.reduce("ReduceMax", stacked, [rank], keep=False, to=writer.output())
        places = writer("ArgMax", stacked, axis=rank, keepdims=0)
        _indices(writer, window, places)

    @staticmethod
    def _sum(writer: Writer, window: _Window, dtype: np.dtype[Any]) -> None:
        name, norm = writer.input(0), writer.attrs.get("p", 2)
        power = writer.node.op_type == "LpPool"
        if power:
            name = writer("Pow", writer("Abs", name), np.array(norm, dtype))
        taps = window.slices(writer, _padded(writer, name, window, np.zeros((), dtype)))
        total = writer("Sum", *taps)
        if power:
            writer("Pow", total, np.array(1 / norm, dtype), to=writer.output())
            return
        writer(
            "Div",
            total,
            _counts(window, bool(writer.attrs.get("count_include_pad")), writer).astype(dtype),
            to=writer.output(),
        )


def _counts(window: _Window, with_pads: bool, writer: Writer) -> Any:
    """Returns by how many elements each window is divided: those of the input, or of the padding too."""
    total: Any = np.ones((1, 1))
    pads = writer.attrs.get("pads", [0] * 2 * len(window.kernel))
    for axis, kernel in enumerate(window.kernel):
        starts = np.arange(window.counts[axis]) * window.strides[axis] - window.begins[axis]
        places = starts[:, None] + np.arange(kernel) * window.dilations[axis]
        begin, end = 0, window.sizes[axis]
        if with_pads:
            begin, end = -window.begins[axis], end + max(pads[axis + len(window.kernel)], 0)
        hits = ((places >= begin) & (places < end)).sum(axis=1)
        total = total[..., None] * hits
    return total


def _indices(writer: Writer, window: _Window, tap: str) -> None:
    """Writes where in the whole input the largest of each window lies, from which tap it is."""
    batch, channels = writer.sizes(writer.input(0))[:2]
    steps = [math.prod(window.sizes[axis + 1 :]) for axis in range(len(window.sizes))]
    if writer.attrs.get("storage_order"):
        steps = [math.prod(window.sizes[:axis]) for axis in range(len(window.sizes))]
    offsets = [sum(t * s for t, s in zip(tap, steps, strict=True)) for tap in window.taps()]
    plane = math.prod(window.sizes)
    starts: Any = (np.arange(batch * channels) * plane).reshape(batch, channels)
    for axis, step in enumerate(steps):
        along = (np.arange(window.counts[axis]) * window.strides[axis] - window.begins[axis]) * step
        starts = starts[..., None] + along
    offset = writer("Gather", np.array(offsets, np.int64), tap, axis=0)
    writer("Add", offset, starts.astype(np.int64), to=writer.output(1))
