"""A Resize of some axes, the sizes of the others being dynamic."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_ROI, _SIZES = 1, 3


class ResizeAllAxes(Spelling):
    """Writes the sizes of all axes where a Resize is given those of some, and the size of another is dynamic.

    TensorRT's parser fills the others up with the sizes that it knows, and takes a dynamic one for -1.

    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[n,3,4,4] x) => (float[n,3,8,7] y) <int64[2] sizes = {8, 7}>
        { y = Resize <axes = [2, 3], mode = "linear"> (x, , , sizes) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[n,3,4,4] x) => (float[n,3,8,7] y)
        <int64[2] sizes = {8, 7}, int64[1] a = {0}, int64[1] channels = {3}, int64[1] b = {0}, int64[1] c = {1}> {
          s = Shape (x)  n = Gather <axis = 0> (s, a)
          h = Gather <axis = 0> (sizes, b)  w = Gather <axis = 0> (sizes, c)
          all = Concat <axis = 0> (n, channels, h, w)  y = Resize <mode = "linear"> (x, , , all)
        }
    """

    name = "resize-all-axes"
    ops = frozenset({"Resize"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        sizes = "".join(columns.inputs[index][_SIZES:])
        return bool(sizes) and attribute(columns.nodes[index], "axes") is not None

    def write(self, writer: Writer, target: Target) -> str | None:
        tensor, sizes = writer.input(0), writer.input(_SIZES)
        shape = writer.shape(tensor)
        axes = [axis % len(shape) for axis in writer.attrs["axes"]]
        stretches = writer.attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch"
        others = [size for axis, size in enumerate(shape) if axis not in axes]
        if not stretches or writer.input(_ROI) or None not in others:
            raise Unwritable
        parts = [
            writer("Gather", sizes, writer.constant([axes.index(axis)], "int64"), axis=0)
            if axis in axes
            else writer.size(tensor, axis)
            for axis in range(len(shape))
        ]
        writer.again([tensor, "", "", writer("Concat", *parts, axis=0)], axes=None)
        return "the sizes of all axes written"
