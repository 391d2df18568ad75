"""TC309."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class IntegerBias(LinearRule):
    """An int32 tensor goes through DequantizeLinear, as ONNX Runtime's quantiser writes biases.

    What it checks:
        The type of every DequantizeLinear's input.
    Why TensorRT cares:
        "input has type Int32 but must have type FP8, FP4, Int4, Int8, or UInt8".
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <int32[2] b = {3,4}, float s = {0.1}, float[2,2,1,1] w = {1,2,3,4}>
        { d = DequantizeLinear (b, s)
          y = ConvTranspose (x, w, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2] d = {0.3,0.4}, float[2,2,1,1] w = {1,2,3,4}>
        { y = ConvTranspose (x, w, d) }
    Fix:
        trtconv build and rewrite fold it into a float initializer: the same numbers.
    Source:
        Parser of RTX 1.7; NVIDIA/TensorRT issue 1694.
    """

    code = "TC309"
    name = "integer-bias"
    fix = "Let trtconv build or rewrite fold it, or quantise with float biases."
    by_hand = "Quantise with float biases."

    def fault(self, linear: Linear, target: Target) -> str | None:
        if linear.quantizes or linear.scope.dtype(linear.node.input[0]) != "int32":
            return None
        shape = linear.scope.shape(linear.node.input[0])
        size = "" if shape is None else f" {list(shape)}"
        return f"dequantises the int32 tensor {linear.node.input[0]!r}{size}: TensorRT takes int8"
