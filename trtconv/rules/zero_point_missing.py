"""TC306."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class ZeroPointMissing(LinearRule):
    """A zero point is missing where TensorRT needs one, or reads its absence as something else.

    What it checks:
        QuantizeLinear without a zero point and output_dtype; for TensorRT 8.6 also DequantizeLinear.
    Why TensorRT cares:
        QuantizeLinear without a zero point gives uint8 (0 to 255) in ONNX; TensorRT reads int8: negative values are
        kept and large ones cut, no message. 8.6 refuses nodes without a zero point.
    Versions:
        All; DequantizeLinear: 8.6.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}>
        { q = QuantizeLinear (x, s)
          y = DequantizeLinear (q, s) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, int8 z = {0}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    Fix:
        trtconv build and rewrite write the zero point that ONNX means.
    Source:
        ONNX operator QuantizeLinear; parsers of 8.6 and RTX 1.7.
    """

    code = "TC306"
    name = "zero-point-missing"
    fix = "Let trtconv build or rewrite write the zero point."
    by_hand = "Write the zero point in the file."

    def fault(self, linear: Linear, target: Target) -> str | None:
        if linear.has_zero_point:
            return None
        if linear.quantizes and not linear.asked_type:
            return "no zero point: ONNX means uint8 (0 to 255), TensorRT reads int8"
        if target.before(9) and linear.dtype != "int32":
            return f"no zero point: {target} refuses the node"
        return None
