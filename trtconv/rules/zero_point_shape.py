"""TC312."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class ZeroPointShape(LinearRule):
    """A zero point has another shape than its scale.

    What it checks:
        The shape of every zero point against that of its scale.
    Why TensorRT cares:
        The parser takes as many zero points as scales, in the same shape; so does ONNX.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float[3] s = {0.1,0.2,0.3}, int8 z = {0}>
        { d = DequantizeLinear <axis = 1> (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float[3] s = {0.1,0.2,0.3}, int8[3] z = {0,0,0}>
        { d = DequantizeLinear <axis = 1> (w, s, z)
          y = ConvTranspose (x, d) }
    Fix:
        trtconv build and rewrite repeat a single zero point; other lengths must be exported right.
    Source:
        ONNX operator DequantizeLinear.
    """

    code = "TC312"
    name = "zero-point-shape"
    fix = "Export one zero point a scale."

    def fault(self, linear: Linear, target: Target) -> str | None:
        scale, point = linear.scale, linear.zero_point
        if scale is None or point is None or scale.shape == point.shape:
            return None
        return f"zero point of shape {list(point.shape)} with a scale of shape {list(scale.shape)}"
