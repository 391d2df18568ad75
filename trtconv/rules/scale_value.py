"""TC303."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.quantization import scale_fault
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class ScaleValue(LinearRule):
    """A scale is zero, negative, infinite or not a number.

    What it checks:
        Every value of every constant scale.
    Why TensorRT cares:
        It refuses scales that are not positive; infinite ones and NaN spread through the network.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0}, int8 z = {0}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, int8 z = {0}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    Fix:
        Calibrate again. A channel of zeros needs a positive scale too, whichever.
    Source:
        ONNX operator QuantizeLinear.
    """

    code = "TC303"
    name = "scale-value"
    fix = "Calibrate again; give channels of zeros any positive scale."

    def fault(self, linear: Linear, target: Target) -> str | None:
        return None if linear.scale is None else scale_fault(linear.scale)
