"""Computes in float32 what TensorRT's parser has in no half type."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.operators import OF_FEWER_TYPES, lacks_type
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Writer


class ComputeInFloat(Spelling):
    """Computes operators in float32 that TensorRT's parser refuses or misreads in float16 or bfloat16.

    Of a Mean it writes 1/n as a float32, half of whose bits are then taken for the number: of three tensors in float16
    it makes -0.05 of their sum. MeanVarianceNormalization is refused in both types, and GlobalLpPool, HardSwish,
    LpNormalization, LpPool, Mish and Shrink in bfloat16.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float16[2] a, float16[2] b) => (float16[2] y) { y = Mean (a, b) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float16[2] a, float16[2] b) => (float16[2] y)
        { c = Cast <to = 1> (a)  d = Cast <to = 1> (b)  m = Mean (c, d)  y = Cast <to = 10> (m) }
    """

    name = "compute-in-float"
    ops = OF_FEWER_TYPES

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        return lacks_type(columns.ops[index], scope.dtype(next(iter(columns.inputs[index]), "")))

    def write(self, writer: Writer, target: Target) -> str | None:
        node = writer.node
        dtype = writer.dtype(writer.input(0))
        result = writer.model.fresh_name(f"{writer.output()}_float32")
        writer.again([writer.cast(name, np.float32) for name in node.input], [result])
        writer.cast(result, dtype, to=writer.output())
        return f"{node.op_type} of {dtype} computed in float32"
