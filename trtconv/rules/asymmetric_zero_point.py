"""TC308."""

from __future__ import annotations

import numpy as np
import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.quantization import EMULATED, UINT8_MIDDLE
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class AsymmetricZeroPoint(LinearRule):
    """Quantised around something that int8 around 0 cannot say.

    What it checks:
        Zero points other than 0 (128 for uint8, see TC307), uint8 around 0, and 16-bit types, also where no zero point
        says so but output_dtype or the type of the tensor does.
    Why TensorRT cares:
        It has symmetric int8 only and refuses the model. ONNX Runtime's quantiser writes such zero points by default.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, int8 z = {3}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, int8 z = {0}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    Fix:
        Calibrate symmetrically (ONNX Runtime: extra_options={"ActivationSymmetric": True}). trtconv build computes it
        in float, bit for bit; with --requantize in int8, on other numbers.
    Source:
        Parsers of 8.6, 10.1 and RTX 1.7.
    """

    code = "TC308"
    name = "asymmetric-zero-point"
    fix = "Calibrate symmetrically, to int8; else trtconv computes it in float, or in int8 with --requantize."
    by_hand = "Calibrate symmetrically, to int8."

    def fault(self, linear: Linear, target: Target) -> str | None:
        if not linear.has_zero_point:
            return _foreign_type(linear)
        point = linear.zero_point
        # Of an empty one TC302 and TC312 say that it does not fit.
        if point is None or not point.size or linear.clash or str(point.dtype) not in EMULATED:
            return None
        if point.dtype == np.int8 and not point.any():
            return None
        if point.dtype == np.uint8 and bool((point == UINT8_MIDDLE).all()):
            return None
        values = sorted({int(v) for v in point.reshape(-1)})
        text = str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"
        return f"{point.dtype} with zero point {text}: TensorRT takes int8 with 0"


def _foreign_type(linear: Linear) -> str | None:
    """Returns what is wrong with the type of a node without a zero point, or None; bare QuantizeLinear is TC306's."""
    if linear.quantizes and not linear.asked_type:
        return None
    dtype = linear.dtype
    if dtype not in EMULATED or dtype == "int8":
        return None
    if not linear.quantizes and _is_bare(linear.scope.producer(linear.node.input[0])):
        return None
    return f"{dtype} without a zero point, which means 0: TensorRT takes int8 with 0"


def _is_bare(node: onnx.NodeProto | None) -> bool:
    """Whether a node is a QuantizeLinear that says its type nowhere."""
    if node is None or node.op_type != "QuantizeLinear" or len(node.input) > 2:
        return False
    return not attribute(node, "output_dtype")
