"""TC304."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class ScaleNotConstant(LinearRule):
    """A scale or zero point is computed, or a graph input.

    What it checks:
        The second and third input of every QuantizeLinear and DequantizeLinear.
    Why TensorRT cares:
        The parser takes initializers only. RTX parses some computed scales and then fails to build, naming no node.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float a = {0.2}, float b = {0.5}, int8 z = {0}>
        { s = Mul (a, b)
          q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, int8 z = {0}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    Fix:
        trtconv build and rewrite fold scales that are computed from constants; others need static calibration.
    Source:
        Parser and builder of RTX 1.7.
    """

    code = "TC304"
    name = "scale-not-constant"
    fix = "Calibrate statically, so that scales and zero points are constants."

    def fault(self, linear: Linear, target: Target) -> str | None:
        if linear.scale is None:
            return f"scale {linear.node.input[1]!r} is not a constant"
        if linear.has_zero_point and linear.zero_point is None:
            return f"zero point {linear.node.input[2]!r} is not a constant"
        return None
