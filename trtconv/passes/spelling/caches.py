"""Writes updates of caches by the elements that they replace."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer


class UpdateByScatter(Spelling):
    """Writes TensorScatter as ScatterElements, where TensorRT has none: around the end, or of other than four axes.

    Before:
        <ir_version: 11, opset_import: ["": 24]>
        g (float[2,4,3] x, float[2,2,3] u, int64[2] i) => (float[2,4,3] y)
        { y = TensorScatter <mode = "circular"> (x, u, i) }
    After:
        <ir_version: 11, opset_import: ["": 24]>
        g (float[2,4,3] x, float[2,2,3] u, int64[2] i) => (float[2,4,3] y)
        <int64[2] axes = {1, 2}, int64[1,2,1] steps = {0, 1}, int64[1] length = {4}, int64[3] sizes = {2, 2, 3}>
        {
          first = Unsqueeze (i, axes)  at = Add (first, steps)  around = Mod (at, length)
          places = Expand (around, sizes)  y = ScatterElements <axis = 1> (x, places, u)
        }
    """

    name = "update-by-scatter"
    ops = frozenset({"TensorScatter"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        node = scope.columns.nodes[index]
        shape = scope.shape(node.input[0])
        return (
            target.before(11)
            or attribute(node, "mode", b"linear") != b"linear"
            or (shape is not None and len(shape) != 4)
            or any(scope.constant(name) is not None for name in node.input[:2])
        )

    def write(self, writer: Writer, target: Target) -> str | None:
        cache, update = writer.input(0), writer.input(1)
        rank = len(writer.shape(cache))
        axis = writer.attrs.get("axis", -2) % rank
        if axis == 0:
            raise Unwritable("its axis is that of the batch")
        places = self._steps(writer, update, axis, rank)
        if writer.input(2):
            places = writer("Add", writer.unsqueeze(writer.input(2), range(1, rank)), places)
        if writer.attrs.get("mode", "linear") == "circular":
            places = writer("Mod", places, writer.size(cache, axis))
        places = writer("Expand", places, writer("Shape", update))
        writer("ScatterElements", cache, places, update, axis=axis, to=writer.output())
        return None

    @staticmethod
    def _steps(writer: Writer, update: str, axis: int, rank: int) -> str:
        """Returns the positions of an update along an axis, with sizes of 1 along the others."""
        length = writer.shape(update)[axis]
        sizes = [-1 if number == axis else 1 for number in range(rank)]
        if length is not None:
            return writer.constant(np.arange(length, dtype=np.int64).reshape(sizes))
        end = writer.squeeze(writer.size(update, axis), [0])
        return writer.reshape(writer("Range", np.array(0, np.int64), end, np.array(1, np.int64)), sizes)
