"""Dequantises deconvolution weights beforehand where a target computes in float anyway."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.graph.model import OnnxModel
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.quantized import COMPUTED, has_linear, read_linear, read_weights


class FoldWeightQuantizers(NodePass):
    """Folds quantised deconvolution weights into float where TensorRT 8 has no int8 kernel for the layer.

    With groups, in 3-D with a float output, or behind an input that is not quantised, it falls back to float - and
    takes the weights in front of their quantiser: up to 2e-2 relative error. The folded weights are what ONNX means.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y) <int8[2,3,1,1] w = {1,2,3,4,5,6}, float s = {0.1}, int8 z = {0}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 4, 4] x) => (float[1, 3,p,q] y)
        <float[2, 3, 1, 1] weight = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}>
        {
          y = ConvTranspose (x, weight)
        }
    """

    name = "fold-weight-quantizers"
    ops = frozenset({"ConvTranspose"})

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return target.before(9) and has_linear(model) and super().may_act(model, target)

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        if len(node.inputs) < 2:
            return None
        dequantizer = _dequantizer(node.inputs[1])
        if dequantizer is None or not _falls_back(field, node):
            return None
        reader = read_linear(field, dequantizer)
        weights = reader if isinstance(reader, str) else read_weights(field, reader)
        if isinstance(weights, str):
            return None if weights == COMPUTED else Refusal(weights)
        node.inputs[1] = field.constant(f"{label(node)}.weight", weights.computed)
        field.replace(node, [node])
        return f"weight {list(weights.computed.shape)} dequantised beforehand: the target runs this layer in float"


def _dequantizer(tensor: gs.Tensor) -> gs.Node | None:
    node = tensor.inputs[0] if tensor.inputs else None
    return node if node is not None and node.op == "DequantizeLinear" else None


def _falls_back(field: Field, node: gs.Node) -> bool:
    """Whether the target has no int8 kernel for a layer. Source: runs on TensorRT 8.6."""
    if int(node.attrs.get("group", 1)) > 1 or _dequantizer(node.inputs[0]) is None:
        return True
    shape = field.shape(node.inputs[1])
    quantized = any(user.op == "QuantizeLinear" for user in node.outputs[0].outputs)
    return shape is not None and len(shape) == 5 and not quantized
