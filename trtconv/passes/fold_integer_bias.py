"""Folds integer constants that TensorRT cannot dequantise."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.quantization import dequantize
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.quantized import read_linear


class FoldIntegerBias(NodePass):
    """Folds an int32 constant and its DequantizeLinear into a float initializer.

    ONNX Runtime's quantizer writes biases that way; TensorRT's parser refuses int32 there.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <int32[2] b = {3,4}, float s = {0.1}, float[2,2,1,1] w = {1,2,3,4}>
        { d = DequantizeLinear (b, s)
          y = ConvTranspose (x, w, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
        <float[2, 2, 1, 1] w = {1, 2, 3, 4}, float[2] d = {0.3, 0.4}>
        {
          y = ConvTranspose (x, w, d)
        }
    """

    name = "fold-integer-bias"
    fixes = ("TC309",)
    ops = frozenset({"DequantizeLinear"})

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        tensor = node.inputs[0]
        values = field.fold(tensor)
        if values is None:
            return Refusal("its int32 input is computed at run time") if field.dtype(tensor) == "int32" else None
        if values.dtype != "int32":
            return None
        linear = read_linear(field, node)
        if isinstance(linear, str):
            return Refusal(linear)
        field.fold_into(node, dequantize(values, linear.scale, linear.zero_point, linear.axis))
        return f"int32 {list(values.shape)} folded into a {linear.scale.dtype} initializer"
