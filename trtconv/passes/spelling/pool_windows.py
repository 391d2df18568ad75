"""The windows of a pooling, as passes that write it otherwise move them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from trtconv.graph.pooling import PoolAxis, axes_of_pool
from trtconv.passes.spelling.sizes import filled
from trtconv.passes.spelling.writer import Unwritable, Writer

_LAST = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class PoolWindow:
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
        """Whether there is any padding."""
        return any((*self.begins, *self.ends))

    def taps(self) -> list[tuple[int, ...]]:
        """Returns the offsets of all taps, row by row."""
        steps = zip(self.kernel, self.dilations, strict=True)
        return list(itertools.product(*([step * tap for tap in range(count)] for count, step in steps)))

    def padded(self, writer: Writer, name: str, value: Any) -> str:
        """Writes the padding of a tensor."""
        return pad(writer, name, self.begins, self.ends, value)

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


def window_of(writer: Writer) -> PoolWindow:
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
    return PoolWindow(kernel, dilations, strides, begins, ends, sizes, counts)


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
    steps = writer("Add", sizes_along(writer), np.array(rooms, np.int64))
    return writer("Div", steps, np.array([axis.stride for axis in axes], np.int64))


def pad(writer: Writer, name: str, begins: Sequence[int], ends: Sequence[int], value: Any) -> str:
    """Writes the padding of the axes that a window moves along; returns the tensor itself where there is none."""
    if not any((*begins, *ends)):
        return name
    return writer("Pad", name, np.array([0, 0, *begins, 0, 0, *ends], np.int64), value, mode="constant")


def sizes_along(writer: Writer) -> str:
    """Writes the sizes of the axes that a window moves along."""
    name = writer.input(0)
    return writer.slice(writer("Shape", name), [2], [len(writer.shape(name))], [0])


def ones_of(writer: Writer, dtype: np.dtype[Any]) -> str:
    """Writes ones in the place of one image of the input."""
    return filled(writer, writer("Concat", np.array([1, 1], np.int64), sizes_along(writer), axis=0), 1, dtype)


def float_type(writer: Writer) -> np.dtype[Any]:
    """Returns the type of the input; raises `Unwritable` where it cannot be padded with what is in no window."""
    if writer.opset < 11:
        raise Unwritable(f"opset {writer.opset} has no Pad with pads as an input")
    dtype = writer.dtype(writer.input(0))
    if dtype.kind in "iub":
        raise Unwritable(f"its input is of {dtype}")
    return dtype
