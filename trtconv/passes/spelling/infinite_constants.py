"""Infinite constants of float64, which parsers take for the largest number of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from trtconv.core.target import Target
from trtconv.passes.spelling.cast_constants import CastConstants


class CastInfiniteConstants(CastConstants):
    """Writes float64 constants that hold infinities as float32 ones behind a Cast.

    TensorRT computes float64 in float32. Its parser moves what is beyond float32 in a float64 constant to the largest
    number of float32, infinities too, without an error: x - inf is finite there. It keeps infinities of float32.

    Before:
        <ir_version: 8, opset_import: ["": 14]>
        g (double[2] x) => (double[2] y) <double[2] c = {1, -inf}> { y = Max (x, c) }
    After:
        <ir_version: 8, opset_import: ["": 14]>
        g (double[2] x) => (double[2] y) <float[2] c = {1, -inf}> { d = Cast <to = 11> (c)  y = Max (x, d) }
    """

    name = "cast-infinite-constants"
    # What is finite is rounded to float32, in which TensorRT computes float64.
    safety = "within tolerance"
    type = onnx.TensorProto.DOUBLE
    through = np.dtype(np.float32)

    def stored(self, values: Any) -> Any:
        # What is finite stays so, as in the parser: beyond float32 it is the largest number there.
        most = np.finfo(self.through).max
        return np.where(np.isinf(values), values, np.clip(values, -most, most)).astype(self.through)

    def misreads(self, values: Any, target: Target) -> bool:
        return bool(np.isinf(values).any())
