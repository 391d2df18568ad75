"""Integer constants of one byte, which TensorRT takes for quantised ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.cast_constants import CastConstants


class CastInt8Constants(CastConstants):
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
    type = onnx.TensorProto.INT8
    through = np.dtype(np.int32)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        # What is constant altogether is folded by the parser.
        names = [name for name in scope.columns.inputs[index] if name]
        return any(scope.constant(name) is None for name in names) and super().lacks(scope, index, target)

    def misreads(self, values: Any, target: Target) -> bool:
        # TensorRT 8.6 has no integers of one byte at all.
        return not target.before(9)
