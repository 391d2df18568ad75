"""Integer constants of one byte, which TensorRT takes for quantised ones."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.wider import ComputeWider
from trtconv.passes.spelling.writer import Writer


class CastInt8Constants(Spelling):
    """Writes int8 constants that are added, compared or moved as int32 ones behind a Cast.

    TensorRT's builder takes an int8 constant for a quantised one, and refuses it anywhere but before a DequantizeLinear
    or a plugin ("Quantized constant is only allowed before DQ").

    Before:
        <ir_version: 8, opset_import: ["": 14]>
        g (int8[2] x) => (int8[2] y) <int8[2] c = {1, -2}> { y = Add (x, c) }
    After:
        <ir_version: 8, opset_import: ["": 14]>
        g (int8[2] x) => (int8[2] y) <int32[2] c = {1, -2}> { d = Cast <to = 3> (c)  y = Add (x, d) }
    """

    name = "cast-int8-constants"
    ops = ComputeWider.ops

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        # What is constant altogether is folded by the parser; TensorRT 8.6 has no integers of one byte at all.
        names = [name for name in scope.columns.nodes[index].input if name]
        constants = [tensor for name in names if (tensor := scope.constant(name)) is not None]
        return (
            not target.before(9)
            and len(constants) < len(names)
            and any(tensor.data_type == tensor.INT8 for tensor in constants)
        )

    def write(self, writer: Writer, target: Target) -> str | None:
        inputs = [self._cast(writer, name) for name in writer.node.input]
        writer.again(inputs)
        return (
            f"{sum(map(str.__ne__, inputs, writer.node.input))} int8 constants of {writer.node.op_type} cast from int32"
        )

    @staticmethod
    def _cast(writer: Writer, name: str) -> str:
        values = writer.scope.values(name) if name and writer.scope.constant(name) is not None else None
        if values is None or values.dtype != np.int8:
            return name
        return writer.cast(writer.constant(values.astype(np.int32)), np.int8)
