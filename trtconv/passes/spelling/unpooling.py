"""Writes Col2Im and MaxUnpool in operators that TensorRT has."""

from __future__ import annotations

import math

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
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

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return True

    def write(self, writer: Writer, target: Target) -> str | None:
        image = [int(size) for size in writer.values(1, "sizes").reshape(-1)]
        block = [int(size) for size in writer.values(2, "block sizes").reshape(-1)]
        rank = len(image)
        if rank > 3:
            raise Unwritable(f"TensorRT has no deconvolution along {rank} axes")
        strides = writer.attrs.get("strides", [1] * rank)
        dilations = writer.attrs.get("dilations", [1] * rank)
        pads = writer.attrs.get("pads", [0] * 2 * rank)
        counts, rests = [], []
        for axis in range(rank):
            room = image[axis] + pads[axis] + pads[axis + rank] - (block[axis] - 1) * dilations[axis] - 1
            counts.append(room // strides[axis] + 1)
            rests.append(room % strides[axis])
        taps = math.prod(block)
        _, rows, _ = writer.shape(writer.input(0))
        if rows is None:
            raise Unwritable("its channels are known only at run time")
        dtype = writer.dtype(writer.input(0))
        folded = writer.reshape(writer.input(0), [-1, taps, *counts])
        result = writer(
            "ConvTranspose",
            folded,
            np.eye(taps, dtype=dtype).reshape(taps, 1, *block),
            strides=strides,
            dilations=dilations,
            pads=pads,
            output_padding=rests if any(rests) else None,
            kernel_shape=block,
        )
        writer.reshape(result, [-1, rows // taps, *image], to=writer.output())
        return None


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

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return True

    def write(self, writer: Writer, target: Target) -> str | None:
        batch, channels, *sizes = writer.sizes(writer.input(0))
        rank = len(sizes)
        strides, pads = writer.attrs.get("strides", [1] * rank), writer.attrs.get("pads", [0] * 2 * rank)
        kernel = writer.attrs["kernel_shape"]
        image = [
            (sizes[axis] - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[axis + rank] for axis in range(rank)
        ]
        if writer.input(2):
            after = self._sizes(writer)
            # Indices are those of the image that the pooling had, which lies at the beginning of the one asked for.
            if any(goal < size for goal, size in zip(after[2:], image, strict=True)):
                raise Unwritable(f"its output of {after} is smaller than what was pooled")
        else:
            after = [batch, channels, *image]
        dtype = writer.dtype(writer.input(0))
        zeros = np.zeros(batch * channels * math.prod(image), dtype)
        values, places = writer.reshape(writer.input(0), [-1]), writer.reshape(writer.input(1), [-1])
        flat = writer("ScatterElements", zeros, places, values, axis=0)
        if after[2:] == image:
            writer.reshape(flat, after, to=writer.output())
            return None
        whole = writer.reshape(flat, [batch, channels, *image])
        ends = [0, 0, *(goal - size for goal, size in zip(after[2:], image, strict=True))]
        writer("Pad", whole, np.array([0] * len(after) + ends, np.int64), np.zeros((), dtype), to=writer.output())
        return None

    @staticmethod
    def _sizes(writer: Writer) -> list[int]:
        try:
            return [int(size) for size in writer.values(2, "sizes").reshape(-1)]
        except Unwritable:
            return list(writer.sizes(writer.output()))
