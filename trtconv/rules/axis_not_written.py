"""TC305."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class AxisNotWritten(LinearRule):
    """A per-channel scale comes without the axis attribute.

    What it checks:
        The axis attribute of every QuantizeLinear and DequantizeLinear with more than one scale.
    Why TensorRT cares:
        ONNX's default is 1. The parser's was 0 up to 10.6 and is 1 in 10.15: the same file means two things.
    Versions:
        TensorRT before 10.15.
    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float[3] s = {0.1,0.2,0.3}, int8[3] z = {0,0,0}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float[3] s = {0.1,0.2,0.3}, int8[3] z = {0,0,0}>
        { d = DequantizeLinear <axis = 1> (w, s, z)
          y = ConvTranspose (x, d) }
    Fix:
        trtconv build and rewrite write it.
    Source:
        onnx-tensorrt, importers of QuantizeLinear and DequantizeLinear.
    """

    code = "TC305"
    name = "axis-not-written"
    fix = "Let trtconv build or rewrite write the axis."
    by_hand = "Write the axis in the file."

    def fault(self, linear: Linear, target: Target) -> str | None:
        if not target.before(10, 15) or linear.scale is None or linear.scale.size == 1:
            return None
        if "axis" in linear.attributes:
            return None
        return f"{linear.scale.size} scales without an axis: ONNX means 1, {target} may read 0"
