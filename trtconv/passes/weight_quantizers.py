"""int8 weights of products, for a TensorRT that quantises them itself."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.graph.quantization import dequantize, quantize_symmetric
from trtconv.graph.views import Linear
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.quantized import has_linear

_PRODUCTS = frozenset({"Gemm", "MatMul"})


class WriteWeightQuantizers(NodePass):
    """Writes int8 weights of a product as float ones behind a QuantizeLinear, which gives the same codes.

    TensorRT 8 takes int8 constants as weights of convolutions. Those of products it refuses in large networks
    ("params.weights.type() != DataType::kINT8"), and a small one was off by 0.8 % that is exact as written here
    (bench/results/gpu-int8-8.6.json).

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3,2] x) => (float[3,2] y) <int8[2,2] w = {1, 2, 3, 4}, float s = {0.5}, int8 z = {0}>
        { d = DequantizeLinear (w, s, z)  y = MatMul (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3,2] x) => (float[3,2] y) <float[2,2] real = {0.5, 1, 1.5, 2}, float s = {0.5}, int8 z = {0}>
        { q = QuantizeLinear (real, s, z)  d = DequantizeLinear (q, s, z)  y = MatMul (x, d) }
    """

    name = "write-weight-quantizers"
    ops = frozenset({"DequantizeLinear"})

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return target.before(9) and has_linear(model) and super().may_act(model, target)

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        linear = Linear(field.scope, field.index(node))
        values = field.values(node.inputs[0])
        if values is None or values.dtype != np.int8 or linear.scale is None or linear.attributes.get("block_size"):
            return None
        if not any(behind.op in _PRODUCTS for behind in node.outputs[0].outputs):
            return None
        if isinstance(linear.channels, str):
            return Refusal(linear.channels)
        if linear.zero_point is None or linear.zero_point.any():
            # normalize-quantizers and others see to that.
            return None
        axis = linear.channels[0]
        real = dequantize(values, linear.scale, linear.zero_point, axis)
        if not np.array_equal(quantize_symmetric(real, linear.scale, axis), values):
            return Refusal("its codes are not those of what they mean")
        name = node.inputs[0].name
        codes = field.variable(f"{name}.codes")
        parameters = list(node.inputs[1:])
        quantizer = field.node(
            "QuantizeLinear",
            f"{node.name or name}.quantize",
            [field.constant(f"{name}.real", real), *parameters],
            codes,
        )
        quantizer.attrs.update(node.attrs)
        node.inputs[0] = codes
        field.replace(node, [quantizer, node])
        return f"int8 {list(values.shape)} written as a float constant and its QuantizeLinear"
