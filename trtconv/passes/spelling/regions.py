"""Writes RoiAlign, and convolutions whose taps move, as products and samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.operators import lacks_operator
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer


class RegionsByMatrix(Spelling):
    """Writes RoiAlign by means as two products with matrices of interpolation weights.

    Its samples lie on a grid along the axes, so that what an output takes of a row, and of a column, are the means of
    hat functions over its samples: `rows @ image @ columns`, for each region. TensorRT has RoiAlign as a plugin alone,
    which TensorRT-RTX has not, and which TensorRT 8.6 looks for in a library that its wheel has not.

    Before:
        <ir_version: 8, opset_import: ["": 16]>
        g (float[1,1,1,4] x, float[1,4] rois) => (float[1,1,1,1] y) <int64[1] b = {0}>
        { y = RoiAlign <sampling_ratio = 1, coordinate_transformation_mode = "output_half_pixel"> (x, rois, b) }
    After:
        <ir_version: 8, opset_import: ["": 16]>
        g (float[1,1,1,4] x, float[1,4] rois) => (float[1,1,1,1] y)
        <float[4] at = {0, 1, 2, 3}, float one = {1}, float zero = {0}, float last = {3}, float half = {0.5},
         float least = {-1}, float most = {4}, float top = {1}, int64[2] column = {4, 1}, int64[4] whole = {1, 1, 1, 1}>
        {
          x1, y1, x2, y2 = Split <axis = 1> (rois)
          w = Sub (x2, x1)  wide = Max (w, one)  mid = Mul (wide, half)  c = Add (x1, mid)  held = Clip (c, zero, last)
          far = Sub (held, at)  off = Abs (far)  hat = Sub (one, off)  cols = Max (hat, zero)
          before = Less (c, least)  behind = Greater (c, most)  out = Or (before, behind)
          tall = Sub (y2, y1)  high = Max (tall, one)  middle = Mul (high, half)  r = Add (y1, middle)
          above = Less (r, least)  below = Greater (r, top)  beyond = Or (above, below)  none = Or (out, beyond)
          kept = Where (none, zero, cols)  up = Reshape (kept, column)  p = MatMul (x, up)  y = Reshape (p, whole)
        }
    """

    name = "regions-by-matrix"
    ops = frozenset({"RoiAlign"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return target.family == "rtx" or target.before(9)

    def write(self, writer: Writer, target: Target) -> str | None:
        attrs = writer.attrs
        if attrs.get("mode", "avg") != "avg":
            raise Unwritable("its mode is max")
        samples = attrs.get("sampling_ratio", 0)
        if samples < 1:
            raise Unwritable("how many samples it takes depends on the regions")
        if writer.opset < 11:
            raise Unwritable(f"opset {writer.opset} has no Clip with limits as inputs")
        image = writer.shape(writer.input(0))
        dtype = writer.dtype(writer.input(0))
        # Opset 10 knew no half pixels.
        half = attrs.get("coordinate_transformation_mode", "half_pixel" if writer.opset >= 16 else "") == "half_pixel"
        x1, y1, x2, y2 = (writer.unsqueeze(coordinate, [2]) for coordinate in writer.split(writer.input(1), [1] * 4, 1))
        weights = []
        sides = ((2, y1, y2, attrs.get("output_height", 1)), (3, x1, x2, attrs.get("output_width", 1)))
        for axis, begin, end, bins in sides:
            scale = np.array(attrs.get("spatial_scale", 1.0), dtype)
            start, stop = writer("Mul", begin, scale), writer("Mul", end, scale)
            length = writer("Sub", stop, start)
            if half:
                start = writer("Sub", start, np.array(0.5, dtype))
            else:
                length = writer("Max", length, np.array(1, dtype))
            places = (np.arange(bins * samples) + 0.5).reshape(bins, samples) / (bins * samples)
            at = writer("Add", start, writer("Mul", length, places.astype(dtype)))
            weights.append(_hats(writer, at, axis, dtype))
        rows = writer.unsqueeze(weights[0], [1])
        columns = writer.unsqueeze(writer("Transpose", weights[1], perm=[0, 2, 1]), [1])
        images = writer.input(0) if image[0] == 1 else writer("Gather", writer.input(0), writer.input(2), axis=0)
        writer("MatMul", writer("MatMul", rows, images), columns, to=writer.output())
        return None


def _hats(writer: Writer, at: str, axis: int, dtype: np.dtype[Any]) -> str:
    """Returns by how much each element along an axis of the image counts in each bin: (regions, bins, size)."""
    zero, one = np.array(0, dtype), np.array(1, dtype)
    length = writer.shape(writer.input(0))[axis]
    if length is None:
        size = writer.squeeze(writer.size(writer.input(0), axis), [0])
        places = writer.cast(writer("Range", np.array(0, np.int64), size, np.array(1, np.int64)), dtype)
        end: Any = writer.cast(size, dtype)
        last: Any = writer("Sub", end, one)
    else:
        places = writer.constant(np.arange(length), dtype)
        end, last = np.array(length, dtype), np.array(length - 1, dtype)
    outside = writer("Or", writer("Less", at, np.array(-1, dtype)), writer("Greater", at, end))
    clipped = writer.unsqueeze(writer("Min", writer("Max", at, zero), last), [3])
    hats = writer("Max", writer("Sub", one, writer("Abs", writer("Sub", clipped, places))), zero)
    inside = writer("Where", writer.unsqueeze(outside, [3]), zero, hats)
    return writer.reduce("ReduceMean", inside, [2], keep=False)


class DeformBySamples(Spelling):
    """Writes DeformConv as a GridSample, at the places of all taps, and a Conv of one by one over them.

    Before:
        <ir_version: 8, opset_import: ["": 20]>
        g (float[1,1,1,4] x, float[1,2,1,4] move) => (float[1,1,1,4] y) <float[1,1,1,1] w = {2}>
        { y = DeformConv (x, w, move) }
    After:
        <ir_version: 8, opset_import: ["": 20]>
        g (float[1,1,1,4] x, float[1,2,1,4] move) => (float[1,1,1,4] y)
        <float[1,1,1,1] w = {2}, float two = {2}, float half = {0.5},
         float[1,1,1,4] across = {-0.75, -0.25, 0.25, 0.75}, float[1,1,1,1] down = {0}>
        {
          v, h = Split <axis = 1> (move)
          vs = Mul (v, two)  hs = Mul (h, half)  r = Add (vs, down)  c = Add (hs, across)
          at = Concat <axis = 1> (c, r)  grid = Transpose <perm = [0, 2, 3, 1]> (at)
          s = GridSample <mode = "linear"> (x, grid)  y = Conv (s, w)
        }
    """

    name = "deform-by-samples"
    ops = frozenset({"DeformConv"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return lacks_operator("DeformConv", target)

    def write(self, writer: Writer, target: Target) -> str | None:
        attrs = writer.attrs
        dtype = writer.dtype(writer.input(0))
        channels, height, width = _known_sizes(writer, writer.input(0), 1)
        filters, depth, *kernel = writer.sizes(writer.input(1))
        rows, columns = _known_sizes(writer, writer.input(2), 2)
        if len(kernel) != 2:
            raise Unwritable("its kernel has other than two axes")
        groups, taps = attrs.get("offset_group", 1), math.prod(kernel)
        moves = writer.reshape(writer.input(2), [-1, taps, 2, rows, columns])
        at = []
        for axis, (size, move) in enumerate(zip((height, width), writer.split(moves, [1, 1], 2), strict=True)):
            base = _base(writer, axis, kernel, (rows, columns))
            # What GridSample takes runs from -1 to 1 between the outer edges of the image.
            shift = ((2 * base + 1) / size - 1).astype(dtype)
            scaled = writer("Mul", writer.squeeze(move, [2]), np.array(2 / size, dtype))
            at.append(writer.unsqueeze(writer("Add", scaled, shift), [4]))
        grid = writer.reshape(writer("Concat", at[1], at[0], axis=4), [-1, taps * rows, columns, 2])
        image = writer.input(0)
        if groups > 1:
            image = writer.reshape(image, [-1, channels // groups, height, width])
        mode = "linear" if writer.opset >= 20 else "bilinear"
        sampled = writer("GridSample", image, grid, mode=mode, padding_mode="zeros", align_corners=0)
        if writer.input(4):
            sampled = writer("Mul", sampled, writer.reshape(writer.input(4), [-1, 1, taps * rows, columns]))
        spread = writer.reshape(sampled, [-1, channels * taps, rows, columns])
        flat, weights = (filters, depth * taps, 1, 1), writer.scope.values(writer.input(1))
        weight = writer.reshape(writer.input(1), flat) if weights is None else writer.constant(weights.reshape(flat))
        bias = [writer.input(3)] if writer.input(3) else []
        writer("Conv", spread, weight, *bias, to=writer.output(), group=attrs.get("group", 1), kernel_shape=[1, 1])
        return None


def _known_sizes(writer: Writer, name: str, first: int) -> tuple[int, ...]:
    shape = writer.shape(name)[first:]
    sizes = tuple(size for size in shape if size is not None)
    if len(sizes) != len(shape) or len(sizes) != 4 - first:
        raise Unwritable(f"the sizes of {name!r} are known only at run time")
    return sizes


def _base(writer: Writer, axis: int, kernel: list[int], counts: tuple[int, int]) -> Any:
    """Returns where the taps lie that are not moved, along one axis of the image: (taps, rows, columns)."""
    strides, dilations = (writer.attrs.get(name, [1, 1])[axis] for name in ("strides", "dilations"))
    begin = writer.attrs.get("pads", [0] * 4)[axis]
    taps = np.indices(kernel)[axis].reshape(-1, 1, 1)
    windows = np.indices(counts)[axis][None]
    return windows * strides - begin + taps * dilations
