"""TC307."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.quantization import UINT8_MIDDLE
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class Uint8Around128(LinearRule):
    """Quantised to uint8 around 128: the numbers of int8 around 0, in a form that TensorRT refuses.

    What it checks:
        Zero points of type uint8 that are all 128.
    Why TensorRT cares:
        "Non-zero zero point is not supported"; uint8 itself is refused by 8.6 and 10.1.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, uint8 z = {128}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, int8 z = {0}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    Fix:
        trtconv build and rewrite shift the whole chain by 128, constants and paddings too: the same numbers.
    Source:
        Parsers of 8.6, 10.1 and RTX 1.7.
    """

    code = "TC307"
    name = "uint8-around-128"
    fix = "Let trtconv build or rewrite shift it to int8."
    by_hand = "Quantise to int8 symmetrically."

    def fault(self, linear: Linear, target: Target) -> str | None:
        point = linear.zero_point
        if point is None or linear.clash or point.dtype != np.uint8 or not bool((point == UINT8_MIDDLE).all()):
            return None
        return f"uint8 with zero point {UINT8_MIDDLE} ({point.size} of them): TensorRT takes int8 with 0"
