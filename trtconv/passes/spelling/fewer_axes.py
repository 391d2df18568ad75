"""Tensors of more axes than TensorRT 8 takes, reshaped to those that it does."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Writer

_MOST = {"InstanceNormalization": 4, "Trilu": 3}
"""Operators to the axes that TensorRT 8.6 takes: of more it refuses a Trilu, and ends on an InstanceNormalization."""


class JoinAxes(Spelling):
    """Joins axes of an InstanceNormalization or a Trilu that TensorRT 8 takes with fewer alone.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3,4,5,6] x, float[3] s, float[3] b) => (float[2,3,4,5,6] y) { y = InstanceNormalization (x, s, b) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3,4,5,6] x, float[3] s, float[3] b) => (float[2,3,4,5,6] y) <int64[4] joined = {0, 0, 0, -1}> {
          r = Reshape (x, joined)  n = InstanceNormalization (r, s, b)  shape = Shape (x)  y = Reshape (n, shape)
        }
    """

    name = "join-axes"
    ops = frozenset(_MOST)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        if not target.before(9):
            return False
        columns = scope.columns
        shape = scope.shape(columns.inputs[index][0])
        return shape is not None and len(shape) > _MOST[columns.ops[index]] and 0 not in shape

    def write(self, writer: Writer, target: Target) -> str | None:
        tensor, *others = writer.node.input
        if writer.node.op_type == "Trilu":
            sizes = [np.array([-1], np.int64), writer.size(tensor, -2), writer.size(tensor, -1)]
            row = writer.reshape(tensor, writer("Concat", *sizes, axis=0))
        else:
            row = writer.reshape(tensor, [0, 0, 0, -1])
        inner = writer.model.fresh_name(f"{writer.output()}_joined")
        writer.again([row, *others], [inner])
        writer.reshape(inner, writer("Shape", tensor), to=writer.output())
        return f"{writer.node.op_type} of {len(writer.shape(tensor))} axes computed over {_MOST[writer.node.op_type]}"
