"""TC313."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class ZeroPointType(LinearRule):
    """A zero point has another type than the values that it is for.

    What it checks:
        The type of the zero point of every DequantizeLinear against that of its input.
    Why TensorRT cares:
        Nobody can say which is right: bytes that mean -1 in int8 mean 255 in uint8. ONNX Runtime refuses the model;
        TensorRT reads the type of one of them.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float s = {0.1}, uint8 z = {128}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float s = {0.1}, int8 z = {0}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose (x, d) }
    Fix:
        Export the zero point in the type of the quantised values. trtconv leaves such a node alone.
    Source:
        ONNX operator DequantizeLinear; ONNX Runtime 1.31.
    """

    code = "TC313"
    name = "zero-point-type"
    fix = "Export the zero point in the type of the quantised values."

    def fault(self, linear: Linear, target: Target) -> str | None:
        types = linear.clash
        return None if types is None else f"its input is {types[0]} and its zero point {types[1]}"
