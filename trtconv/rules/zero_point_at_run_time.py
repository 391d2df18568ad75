"""TC615."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class ZeroPointAtRunTime(LinearRule):
    """A zero point that is computed, or an input of the model, of which TensorRT makes zero.

    What it checks:
        Zero points of QuantizeLinear and DequantizeLinear that are no constants.
    Why TensorRT cares:
        TensorRT's quantisers have no zero point but zero. Another one is refused as a constant, and accepted with a
        warning where it is known at run time only: every value is then off by it.
    Versions:
        TensorRT-RTX 1.7; which others is not known.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x, int8 z) => (float[1,2,4,4] y) <float s = {0.1}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, int8 z = {0}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    Fix:
        Quantise with constant, symmetric scales.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes.
    """

    code = "TC615"
    name = "zero-point-at-run-time"
    fix = "Quantise with constant, symmetric scales."

    def fault(self, linear: Linear, target: Target) -> str | None:
        if not linear.has_zero_point or linear.zero_point is not None:
            return None
        return "its zero point is known at run time only, and TensorRT takes it for 0"
