"""Writes Col2Im and MaxUnpool in operators that TensorRT has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trtconv.core.target import Target
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.sizes import Number, filled, joined, plus, sizes_of, times
from trtconv.passes.spelling.writer import Unwritable, Writer


class UnfoldColumns(Spelling):
    """Writes Col2Im as a ConvTranspose whose kernel puts every column in its place.

    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[1,2,2] x) => (float[1,1,1,3] y) <int64[2] i = {1, 3}, int64[2] b = {1, 2}> { y = Col2Im (x, i, b) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[1,2,2] x) => (float[1,1,1,3] y) <int64[4] s = {-1, 2, 1, 2}, float[2,1,1,2] w = {1, 0, 0, 1},
        int64[4] e = {-1, 1, 1, 3}>
        { a = Reshape (x, s)  c = ConvTranspose (a, w)  y = Reshape (c, e) }
    """

    name = "unfold-columns"
    ops = frozenset({"Col2Im"})

    def write(self, writer: Writer, target: Target) -> str | None:
        block = [int(size) for size in writer.values(2, "block sizes").reshape(-1)]
        rank = len(block)
        if rank > 3:
            raise Unwritable(f"TensorRT has no deconvolution along {rank} axes")
        _, rows, _ = writer.shape(writer.input(0))
        if rows is None:
            raise Unwritable("its channels are known only at run time")
        columns = _Columns(
            block,
            writer.attrs.get("strides", [1] * rank),
            writer.attrs.get("dilations", [1] * rank),
            writer.attrs.get("pads", [0] * 2 * rank),
        )
        image = writer.resolve(writer.input(1))
        if image is None:
            columns.unfold_at_run_time(writer, rows)
        else:
            columns.unfold(writer, rows, [int(size) for size in image.reshape(-1)])
        return None


class _Columns(NamedTuple):
    """How the windows lie whose elements are the columns."""

    block: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]

    def unfold(self, writer: Writer, rows: int, image: Sequence[int]) -> None:
        taps = math.prod(self.block)
        rooms = [size - gap for size, gap in zip(image, self._gaps(), strict=True)]
        counts = [room // stride + 1 for room, stride in zip(rooms, self.strides, strict=True)]
        rests = [room % stride for room, stride in zip(rooms, self.strides, strict=True)]
        folded = writer.reshape(writer.input(0), [-1, taps, *counts])
        result = self._deconvolved(writer, folded, rests)
        writer.reshape(result, [-1, rows // taps, *image], to=writer.output())

    def unfold_at_run_time(self, writer: Writer, rows: int) -> None:
        """Writes it for an image whose sizes are known only at run time."""
        rank, taps, image = len(self.block), math.prod(self.block), writer.input(1)
        steps = writer("Div", writer("Sub", image, np.array(self._gaps(), np.int64)), np.array(self.strides, np.int64))
        counts = writer("Add", steps, np.array([1], np.int64))
        grid = writer("Concat", np.array([-1, taps], np.int64), counts, axis=0)
        folded = writer.reshape(writer.input(0), grid)
        # What is left behind the last window hangs on the sizes: the most that may be, cut off at the end.
        longest = [stride - 1 for stride in self.strides]
        result = self._deconvolved(writer, folded, longest)
        if any(longest):
            result = writer.slice(result, [0] * rank, image, range(2, 2 + rank))
        shape = writer("Concat", np.array([-1, rows // taps], np.int64), image, axis=0)
        writer.reshape(result, shape, to=writer.output())

    def _gaps(self) -> list[int]:
        """Returns by how much an image is larger than the way from its first window to its last, along each axis."""
        rank = len(self.block)
        extents = ((size - 1) * dilation + 1 for size, dilation in zip(self.block, self.dilations, strict=True))
        return [extent - self.pads[axis] - self.pads[axis + rank] for axis, extent in enumerate(extents)]

    def _deconvolved(self, writer: Writer, folded: str, rests: Sequence[int]) -> str:
        taps, dtype = math.prod(self.block), writer.dtype(writer.input(0))
        return writer(
            "ConvTranspose",
            folded,
            np.eye(taps, dtype=dtype).reshape(taps, 1, *self.block),
            strides=self.strides,
            dilations=self.dilations,
            pads=self.pads,
            output_padding=rests if any(rests) else None,
            kernel_shape=self.block,
        )


class UnpoolByScatter(Spelling):
    """Writes MaxUnpool as ScatterElements into zeros.

    Before:
        <ir_version: 8, opset_import: ["": 11]>
        g (float[1,1,1] x, int64[1,1,1] i) => (float[1,1,2] y)
        { y = MaxUnpool <kernel_shape = [2], strides = [2]> (x, i) }
    After:
        <ir_version: 8, opset_import: ["": 11]>
        g (float[1,1,1] x, int64[1,1,1] i) => (float[1,1,2] y)
        <float[2] z = {0, 0}, int64[1] f = {-1}, int64[3] s = {1, 1, 2}>
        { a = Reshape (x, f)  b = Reshape (i, f)  c = ScatterElements (z, b, a)  y = Reshape (c, s) }
    """

    name = "unpool-by-scatter"
    ops = frozenset({"MaxUnpool"})

    def write(self, writer: Writer, target: Target) -> str | None:
        name, dtype = writer.input(0), writer.dtype(writer.input(0))
        shape = self._pooled(writer, sizes_of(writer, name, writer.shape(name)))
        count = times(writer, *shape)
        zeros = np.zeros(count, dtype) if isinstance(count, int) else filled(writer, joined(writer, [count]), 0, dtype)
        values, places = writer.reshape(name, [-1]), writer.reshape(writer.input(1), [-1])
        flat = writer("ScatterElements", zeros, places, values, axis=0)
        ends = self._ends(writer, shape[2:])
        if not any(ends):
            writer.reshape(flat, joined(writer, shape), to=writer.output())
            return None
        whole = writer.reshape(flat, joined(writer, shape))
        pads = np.array([*[0] * (len(shape) + 2), *ends], np.int64)
        writer("Pad", whole, pads, np.zeros((), dtype), to=writer.output())
        return None

    @staticmethod
    def _pooled(writer: Writer, sizes: Sequence[Number]) -> list[Number]:
        """Returns the sizes of the image that was pooled."""
        rank = len(sizes) - 2
        strides, pads = writer.attrs.get("strides", [1] * rank), writer.attrs.get("pads", [0] * 2 * rank)
        image = [
            plus(
                writer,
                times(writer, plus(writer, sizes[axis + 2], -1), strides[axis]),
                writer.attrs["kernel_shape"][axis] - pads[axis] - pads[axis + rank],
            )
            for axis in range(rank)
        ]
        return [*sizes[:2], *image]

    @staticmethod
    def _ends(writer: Writer, image: Sequence[Number]) -> list[int]:
        """Returns how much larger the image that is asked for is than the one that was pooled, at whose beginning it
        lies: indices are of that one, as ONNX defines them; ONNX Runtime takes them for those of the other.
        """
        if not writer.input(2):
            return [0] * len(image)
        pooled = [size for size in image if isinstance(size, int)]
        if len(pooled) < len(image):
            raise Unwritable("whether its output is larger than what was pooled is known only at run time")
        try:
            goals = [int(size) for size in writer.values(2, "sizes").reshape(-1)[2:]]
        except Unwritable:
            goals = list(writer.sizes(writer.output()))[2:]
        ends = [goal - size for goal, size in zip(goals, pooled, strict=True)]
        if min(ends) < 0:
            raise Unwritable(f"its output of {goals} is smaller than what was pooled")
        return ends
