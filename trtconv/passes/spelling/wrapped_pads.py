"""A Pad that wraps around what it crops too."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_PADS, _AXES = 1, 3
_END = np.iinfo(np.int64).max


class CropBeforeWrap(Spelling):
    """Writes a Pad that wraps around and has negative amounts as a Slice, and a Pad of what that leaves.

    ONNX Runtime wraps around what is left; TensorRT's parser goes around what was there before.

    Before:
        <ir_version: 9, opset_import: ["": 19]>
        g (float[4] x) => (float[4] y) <int64[2] pads = {-1, 1}> { y = Pad <mode = "wrap"> (x, pads) }
    After:
        <ir_version: 9, opset_import: ["": 19]>
        g (float[4] x) => (float[4] y)
        <int64[1] a = {1}, int64[1] b = {9223372036854775807}, int64[1] axes = {0}, int64[2] pads = {0, 1}>
        { c = Slice (x, a, b, axes)  y = Pad <mode = "wrap"> (c, pads) }
    """

    name = "crop-before-wrap"
    ops = frozenset({"Pad"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return any(attribute.s == b"wrap" for attribute in scope.columns.attributes[index])

    def write(self, writer: Writer, target: Target) -> str | None:
        pads = writer.values(_PADS, "pads").reshape(2, -1).astype(np.int64)
        if (pads >= 0).all():
            raise Unwritable
        axes = writer.values(_AXES, "axes") if writer.input(_AXES) else range(pads.shape[1])
        crops = np.minimum(pads, 0)
        ends = np.where(crops[1] < 0, crops[1], _END)
        middle = writer.slice(writer.input(0), -crops[0], ends, [int(axis) for axis in axes])
        rest = writer.constant(np.maximum(pads, 0).reshape(-1))
        writer.again([middle, rest, *writer.node.input[2:]])
        return "what is cropped is cut off first"
