"""Writes poolings that TensorRT lacks tap by tap, and those whose number of windows it counts otherwise."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper

from trtconv.core.target import Target
from trtconv.graph.pooling import PoolAxis, axes_of_pool, can_exceed, rounds_up
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.sizes import Number, filled, plus, positions, sizes_of, spread, times
from trtconv.passes.spelling.writer import Unwritable, Writer

_MOST_TAPS = 1024
_LAST = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class _Window:
    """The taps of a pooling.

    Args:
        kernel: Taps by axis.
        dilations: Steps between them.
        strides: Steps between windows.
        begins: Padding in front.
        ends: Padding behind, as much as the last window needs at most.
        sizes: Of the input; None where they are known only at run time.
        counts: A tensor of the numbers of windows, where the padding does not say them.
    """

    kernel: tuple[int, ...]
    dilations: tuple[int, ...]
    strides: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    sizes: tuple[int | None, ...]
    counts: str = ""

    @property
    def axes(self) -> range:
        """The axes of the input that it moves along."""
        return range(2, 2 + len(self.kernel))

    @property
    def reaches(self) -> tuple[int, ...]:
        """How far it reaches, by axis."""
        return tuple((taps - 1) * step + 1 for taps, step in zip(self.kernel, self.dilations, strict=True))

    def count(self, axis: int) -> int | None:
        """Returns the number of windows along an axis; None where its size is not known."""
        size = self.sizes[axis]
        if size is None or self.counts:
            return None
        return (self.begins[axis] + size + self.ends[axis] - self.reaches[axis]) // self.strides[axis] + 1

    @property
    def is_padded(self) -> bool:
        return any((*self.begins, *self.ends))

    def taps(self) -> list[tuple[int, ...]]:
        """Returns the offsets of all taps, row by row."""
        steps = zip(self.kernel, self.dilations, strict=True)
        return list(itertools.product(*([step * tap for tap in range(count)] for count, step in steps)))

    def padded(self, writer: Writer, name: str, value: Any) -> str:
        """Writes the padding of a tensor."""
        if not self.is_padded:
            return name
        pads = [0, 0, *self.begins, 0, 0, *self.ends]
        return writer("Pad", name, np.array(pads, np.int64), value, mode="constant")

    def slices(self, writer: Writer, padded: str) -> list[str]:
        """Writes for each tap what it sees of the padded input."""
        last = ""
        if self.counts:
            steps = writer("Mul", writer("Sub", self.counts, np.array([1], np.int64)), np.array(self.strides, np.int64))
            last = writer("Add", steps, np.array([1], np.int64))
        return [
            writer.slice(
                padded,
                tap,
                writer("Add", last, np.array(tap, np.int64)) if last else self._ends(tap),
                list(self.axes),
                self.strides,
            )
            for tap in self.taps()
        ]

    def _ends(self, tap: tuple[int, ...]) -> list[int]:
        """Returns where the places that a tap sees end: behind one lies all that the window reaches from there."""
        counts = map(self.count, range(len(tap)))
        rows = zip(tap, counts, self.strides, self.reaches, strict=True)
        return [
            place - reach + 1 or _LAST if count is None else place + (count - 1) * stride + 1
            for place, count, stride, reach in rows
        ]


def _window_of(writer: Writer) -> _Window:
    """Returns the taps of a pooling node.

    Raises:
        Unwritable: Its padding hangs on sizes that are not known.
    """
    attrs = writer.attrs
    kernel = tuple(attrs["kernel_shape"])
    sizes = tuple(writer.shape(writer.input(0)))[2:]
    if len(sizes) != len(kernel):
        raise Unwritable("its input has other axes than its kernel")
    ones = (1,) * len(kernel)
    dilations, strides = tuple(attrs.get("dilations", ones)), tuple(attrs.get("strides", ones))
    mode = attrs.get("auto_pad", "NOTSET")
    rounds = bool(attrs.get("ceil_mode")) and mode == "NOTSET"
    # Of an axis whose size is not known nothing is used that hangs on it.
    stated = {**attrs, "pads": None} if mode != "NOTSET" else attrs
    axes = [axis for axis in axes_of_pool(stated, [size or 1 for size in sizes]) if axis is not None]
    pads = [
        _run_time_pads(axis, mode, rounds) if size is None else _pads(axis, mode, rounds)
        for axis, size in zip(axes, sizes, strict=True)
    ]
    begins, ends = (tuple(values) for values in zip(*pads, strict=True))
    counts = _counts_at_run_time(writer, axes) if rounds and None in sizes else ""
    return _Window(kernel, dilations, strides, begins, ends, sizes, counts)


def _pads(axis: PoolAxis, mode: str, rounds: bool) -> tuple[int, int]:
    """Returns the padding of an axis whose size is known."""
    begin = axis.begin
    if mode.startswith("SAME"):
        count = -(-axis.size // axis.stride)
        whole = max(0, (count - 1) * axis.stride + axis.reach - axis.size)
        begin = whole // 2 if mode == "SAME_UPPER" else whole - whole // 2
    else:
        count = axis.count if rounds else (axis.size + begin + axis.end - axis.reach) // axis.stride + 1
    return begin, max(0, (count - 1) * axis.stride + axis.reach - begin - axis.size)


def _run_time_pads(axis: PoolAxis, mode: str, rounds: bool) -> tuple[int, int]:
    """Returns the padding of an axis whose size is not known."""
    if not mode.startswith("SAME"):
        return axis.begin, axis.end + (axis.stride - 1 if rounds else 0)
    if axis.stride > 1:
        raise Unwritable("its padding depends on sizes that are known only at run time")
    whole = axis.reach - 1
    begin = whole // 2 if mode == "SAME_UPPER" else whole - whole // 2
    return begin, whole - begin


def _counts_at_run_time(writer: Writer, axes: Sequence[PoolAxis]) -> str:
    """Writes how many windows there are where sizes are rounded up, without one that begins in the end padding."""
    rooms = [axis.begin + min(axis.end - axis.reach + axis.stride, 0) + axis.stride - 1 for axis in axes]
    steps = writer("Add", _sizes(writer), np.array(rooms, np.int64))
    return writer("Div", steps, np.array([axis.stride for axis in axes], np.int64))


def _sizes(writer: Writer) -> str:
    """Writes the sizes of the axes that a window moves along."""
    name = writer.input(0)
    return writer.slice(writer("Shape", name), [2], [len(writer.shape(name))], [0])


def _ones(writer: Writer, dtype: np.dtype[Any]) -> str:
    """Writes ones in the place of one image of the input."""
    return filled(writer, writer("Concat", np.array([1, 1], np.int64), _sizes(writer), axis=0), 1, dtype)


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
        dtype, window = _float_type(writer), _window_of(writer)
        if writer.node.op_type == "MaxPool":
            self._max(writer, window, dtype)
        else:
            self._sum(writer, window, dtype)
        return None

    @staticmethod
    def _max(writer: Writer, window: _Window, dtype: np.dtype[Any]) -> None:
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
    def _sum(writer: Writer, window: _Window, dtype: np.dtype[Any]) -> None:
        name, norm = writer.input(0), writer.attrs.get("p", 2)
        power = writer.node.op_type == "LpPool"
        if power:
            name = writer("Pow", writer("Abs", name), np.array(norm, dtype))
        total = writer("Sum", *window.slices(writer, window.padded(writer, name, np.zeros((), dtype))))
        if power:
            writer("Pow", total, np.array(1 / norm, dtype), to=writer.output())
            return
        writer("Div", total, _hits(writer, window, dtype), to=writer.output())


def _hits(writer: Writer, window: _Window, dtype: np.dtype[Any]) -> Any:
    """Returns by how many elements each window is divided: those of the input, or of the padding too."""
    with_pads = bool(writer.attrs.get("count_include_pad"))
    if None not in window.sizes:
        return _known_hits(window, with_pads, writer).astype(dtype)
    if not window.counts and (with_pads or not window.is_padded):
        return np.array(math.prod(window.kernel), dtype)
    if with_pads and window.is_padded:
        raise Unwritable("its padding counts, and its sizes are rounded up at run time")
    ones = window.padded(writer, _ones(writer, dtype), np.zeros((), dtype))
    return writer("Sum", *window.slices(writer, ones))


def _known_hits(window: _Window, with_pads: bool, writer: Writer) -> Any:
    total: Any = np.ones((1, 1))
    pads = writer.attrs.get("pads", [0] * 2 * len(window.kernel))
    for axis, kernel in enumerate(window.kernel):
        starts = np.arange(window.count(axis) or 0) * window.strides[axis] - window.begins[axis]
        places = starts[:, None] + np.arange(kernel) * window.dilations[axis]
        begin, end = 0, window.sizes[axis] or 0
        if with_pads:
            begin, end = -window.begins[axis], end + max(pads[axis + len(window.kernel)], 0)
        total = total[..., None] * ((places >= begin) & (places < end)).sum(axis=1)
    return total


def _indices(writer: Writer, window: _Window, tap: str) -> None:
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


def _float_type(writer: Writer) -> np.dtype[Any]:
    """Returns the type of the input; raises `Unwritable` where it cannot be padded with what is in no window."""
    if writer.opset < 11:
        raise Unwritable(f"opset {writer.opset} has no Pad with pads as an input")
    dtype = writer.dtype(writer.input(0))
    if dtype.kind in "iub":
        raise Unwritable(f"its input is of {dtype}")
    return dtype


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
        dtype, source = _float_type(writer), writer.input(0)
        pads = attrs.get("pads") or [0] * 2 * len(kernel)
        if any(pads):
            padding = [0, 0, *pads[: len(kernel)], 0, 0, *pads[len(kernel) :]]
            source = writer("Pad", source, np.array(padding, np.int64), np.zeros((), dtype), mode="constant")
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
        dtype, window = _float_type(writer), _window_of(writer)
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
    def _pool(writer: Writer, window: _Window, padded: str, to: str) -> str:
        dropped = ("ceil_mode", "pads", "auto_pad", "count_include_pad", "storage_order")
        attrs: Mapping[str, Any] = {key: value for key, value in writer.attrs.items() if key not in dropped}
        pooled = writer(writer.node.op_type, padded, **attrs)
        return writer.slice(pooled, [0] * len(window.kernel), window.counts, list(window.axes), to=to)


def _counted(writer: Writer, window: _Window, dtype: np.dtype[Any]) -> str:
    """Writes ones where an element counts, in the place of one padded image, and zeros elsewhere."""
    ones, zero = _ones(writer, dtype), np.zeros((), dtype)
    pads = writer.attrs.get("pads")
    if not (writer.attrs.get("count_include_pad") and pads):
        return window.padded(writer, ones, zero)
    rank = len(window.kernel)
    padding = [0, 0, *pads[:rank], 0, 0, *pads[rank:]]
    ones = writer("Pad", ones, np.array(padding, np.int64), np.ones((), dtype), mode="constant")
    beyond = [0] * (rank + 4) + [end - pad for end, pad in zip(window.ends, pads[rank:], strict=True)]
    return writer("Pad", ones, np.array(beyond, np.int64), zero, mode="constant")
