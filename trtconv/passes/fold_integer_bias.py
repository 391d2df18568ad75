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
