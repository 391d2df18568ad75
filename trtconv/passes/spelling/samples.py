"""Writes GridSample as sums over what its places have around them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_IMAGE = 4
_NEAREST, _LINEAR = "nearest", "linear"
_MODES = {_NEAREST: _NEAREST, _LINEAR: _LINEAR, "bilinear": _LINEAR}
_FLOAT = np.float32


class SampleByGather(Spelling):
    """Writes GridSample as Gathers of the elements around each place, and sums them by their distances.

    TensorRT 8.6 samples images alone; its parser ends the process at a volume.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 20]>
        g (float[1,1,1,1,3] x, float[1,1,1,1,3] at) => (float[1,1,1,1,1] y)
        { y = GridSample <mode = "nearest", padding_mode = "border", align_corners = 1> (x, at) }
    After:
        <ir_version: 8, opset_import: ["": 20]>
        g (float[1,1,1,1,3] x, float[1,1,1,1,3] at) => (float[1,1,1,1,1] y)
        <int64[2] rows = {1, 3}, int64[2] places = {1, -1}, int64 first = {0}, float one = {1}, float zero = {0},
         float last = {2}, float half = {0.5}, int64[5] whole = {1, 1, 1, 1, 1}>
        {
          flat = Reshape (x, rows)  columns = Transpose <perm = [1, 0]> (flat)
          a = Gather <axis = 4> (at, first)  b = Add (a, one)  c = Mul (b, last)  d = Mul (c, half)
          r = Round (d)  low = Max (r, zero)  held = Min (low, last)  i = Cast <to = 7> (held)
          f = Reshape (i, places)  taken = Gather <axis = 0> (columns, f)  y = Reshape (taken, whole)
        }
    """

    name = "sample-by-gather"
    ops = frozenset({"GridSample"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        shape = scope.shape(scope.columns.inputs[index][0])
        return target.before(9) and shape is not None and len(shape) > _IMAGE

    def write(self, writer: Writer, target: Target) -> str | None:
        attrs = writer.attrs
        mode = _MODES.get(attrs.get("mode", _LINEAR))
        padding = attrs.get("padding_mode", "zeros")
        if mode is None or padding not in ("zeros", "border", "reflection"):
            raise Unwritable(f"its mode is {attrs.get('mode')}, and its padding_mode {padding}")
        image, grid = writer.input(0), writer.input(1)
        dtype = writer.dtype(image)
        if dtype.kind != "f":
            raise Unwritable(f"it samples {dtype}")
        shape, places = writer.shape(image), writer.shape(grid)
        axes = len(shape) - 2
        if axes < 1 or len(places) != axes + 2:
            raise Unwritable("its grid has other axes than its input")
        if places[-1] not in (axes, None):
            raise Unwritable(f"its grid has {places[-1]} coordinates for {axes} axes")
        corners = bool(attrs.get("align_corners", 0))
        at = grid if writer.dtype(grid) == _FLOAT else writer.cast(grid, _FLOAT)
        taps = []
        for axis in range(axes):
            # The last axis of a grid begins with the last axis of the image.
            coordinate = writer("Gather", at, np.array(axes - 1 - axis, np.int64), axis=axes + 1)
            side = _Side(writer, axis + 2, corners)
            place = side.place(coordinate)
            if mode == _NEAREST:
                place = writer("Round", place)
            place = side.hold(place, padding)
            taps.append(side.taps(place, mode, zeros=padding == "zeros"))
        _write_sum(writer, taps, dtype)
        return None


@frozen
class _Tap:
    """One element along one axis that a place takes: its index as a float, and how much it counts; None: 1."""

    index: str
    weight: str | None


class _Side:
    """An axis of an image, whose size may be known at run time alone."""

    def __init__(self, writer: Writer, axis: int, corners: bool) -> None:
        self._writer = writer
        self._corners = corners
        size = writer.shape(writer.input(0))[axis]
        if size is None:
            self._size = writer.cast(writer.squeeze(writer.size(writer.input(0), axis), [0]), _FLOAT)
            self._last = writer("Sub", self._size, _number(1))
        else:
            self._size, self._last = writer.constant(_number(size)), writer.constant(_number(size - 1))

    def place(self, coordinate: str) -> str:
        """Returns the place in the image of what runs from -1 to 1."""
        writer = self._writer
        shifted = writer("Add", coordinate, _number(1))
        if self._corners:
            return writer("Mul", writer("Mul", shifted, self._last), _number(0.5))
        scaled = writer("Mul", shifted, self._size)
        return writer("Mul", writer("Sub", scaled, _number(1)), _number(0.5))

    def hold(self, place: str, padding: str) -> str:
        """Returns a place within the image, as the padding says."""
        if padding == "zeros":
            return place
        if padding == "reflection":
            place = self._reflected(place)
        return self._clip(place)

    def _reflected(self, place: str) -> str:
        """Returns a place mirrored at the edges as often as it takes: a wave of triangles."""
        writer = self._writer
        begin, length = (_number(0), self._last) if self._corners else (_number(-0.5), self._size)
        # An axis of one element has no length between its corners.
        length = writer("Max", length, _number(1e-6))
        period = writer("Mul", length, _number(2))
        moved = writer("Sub", place, begin)
        turns = writer("Floor", writer("Div", moved, period))
        rest = writer("Sub", moved, writer("Mul", turns, period))
        wave = writer("Sub", length, writer("Abs", writer("Sub", rest, length)))
        return writer("Add", wave, begin)

    def _clip(self, place: str) -> str:
        return self._writer("Min", self._writer("Max", place, _number(0)), self._last)

    def taps(self, place: str, mode: str, *, zeros: bool) -> list[_Tap]:
        """Returns what a place takes: the element there, or the two around it."""
        writer = self._writer
        if mode == _NEAREST:
            return [self._tap(place, None, zeros)]
        below = writer("Floor", place)
        share = writer("Sub", place, below)
        rest = writer("Sub", _number(1), share)
        return [self._tap(below, rest, zeros), self._tap(writer("Add", below, _number(1)), share, zeros)]

    def _tap(self, place: str, weight: str | None, zeros: bool) -> _Tap:
        writer = self._writer
        index = self._clip(place)
        if zeros:
            inside = writer.cast(writer("Equal", index, place), _FLOAT)
            weight = inside if weight is None else writer("Mul", weight, inside)
        return _Tap(index, weight)


def _write_sum(writer: Writer, taps: Sequence[Sequence[_Tap]], dtype: np.dtype[Any]) -> None:
    """Writes the sum over all elements that a place takes, one of each axis together."""
    image, axes = writer.input(0), len(taps)
    batch, channels = writer.size(image, 0), writer.size(image, 1)
    sizes = [writer.size(image, axis + 2) for axis in range(axes)]
    every = writer.constant([-1], np.int64)
    rows = writer("Transpose", image, perm=[0, *range(2, axes + 2), 1])
    rows = writer.reshape(rows, writer("Concat", every, channels, axis=0))
    flat = writer("Concat", batch, every, axis=0)
    count = writer.shape(image)[0]
    begins = None if count == 1 else _first_rows(writer, count, batch, sizes)
    total = None
    for corner in itertools.product(*taps):
        index = writer.cast(corner[0].index, np.int64)
        for size, tap in zip(sizes[1:], corner[1:], strict=True):
            index = writer("Add", writer("Mul", index, size), writer.cast(tap.index, np.int64))
        index = writer.reshape(index, flat)
        values = writer("Gather", rows, index if begins is None else writer("Add", index, begins), axis=0)
        weights = [tap.weight for tap in corner if tap.weight is not None]
        if weights:
            weight = functools.reduce(lambda one, other: writer("Mul", one, other), weights)
            weight = writer.unsqueeze(writer.reshape(weight, flat), [2])
            values = writer("Mul", values, weight if dtype == _FLOAT else writer.cast(weight, dtype))
        total = values if total is None else writer("Add", total, values)
    assert total is not None
    ends = [writer.size(writer.input(1), axis + 1) for axis in range(axes)]
    whole = writer("Concat", batch, channels, *ends, axis=0)
    writer.reshape(writer("Transpose", total, perm=[0, 2, 1]), whole, to=writer.output())


def _first_rows(writer: Writer, batch: int | None, size: str, sides: Sequence[str]) -> str:
    """Returns where each image of a batch begins among the rows of all: (batch, 1)."""
    step = sides[0]
    for side in sides[1:]:
        step = writer("Mul", step, side)
    if batch is None:
        count = writer.squeeze(size, [0])
        numbers = writer("Range", np.array(0, np.int64), count, np.array(1, np.int64))
        return writer("Mul", writer.unsqueeze(numbers, [1]), step)
    return writer("Mul", writer.constant(np.arange(batch, dtype=np.int64)[:, None]), step)


def _number(value: float) -> Any:
    return np.array(value, _FLOAT)
