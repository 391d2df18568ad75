"""Dequantises deconvolution weights beforehand where a target computes in float anyway."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.graph.quantization import EMULATED, dequantize, quantize
from trtconv.passes.base import NodePass, Operation, Refusal
from trtconv.passes.quantized import Linear, has_linear, read_linear


class FoldWeightQuantizers(NodePass):
    """Folds quantised deconvolution weights into float where TensorRT 8 has no int8 kernel for the layer.

    With groups, in 3-D with a float output, or behind an input that is not quantised, it falls back to float - and
    takes the weights in front of their quantiser: up to 2e-2 relative error. The folded weights are what ONNX means.
    """

    name = "fold-weight-quantizers"
    ops = frozenset({"ConvTranspose"})

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return target.before(9) and super().may_act(model, target) and has_linear(model)

    def visit(self, operation: Operation) -> str | Refusal | None:
        field, node = operation.field, operation.node
        assert isinstance(node, gs.Node)
        if len(node.inputs) < 2:
            return None
        dequantizer = _producer(node.inputs[1], "DequantizeLinear")
        if dequantizer is None or not _falls_back(field, node):
            return None
        weights = _weights(field, dequantizer)
        if weights is None or isinstance(weights, str):
            return None if weights is None else Refusal(weights)
        node.inputs[1] = field.constant(f"{node.name or node.op}.weight", weights)
        field.replace(node, [node])
        return f"weight {list(weights.shape)} dequantised beforehand: the target runs this layer in float"


def _producer(tensor: gs.Tensor, op: str) -> gs.Node | None:
    node = tensor.inputs[0] if tensor.inputs else None
    return node if node is not None and node.op == op else None


def _falls_back(field: Field, node: gs.Node) -> bool:
    """Whether the target has no int8 kernel for a layer. Source: runs on TensorRT 8.6."""
    if int(node.attrs.get("group", 1)) > 1 or _producer(node.inputs[0], "DequantizeLinear") is None:
        return True
    shape = field.shape(node.inputs[1])
    quantized = any(user.op == "QuantizeLinear" for user in node.outputs[0].outputs)
    return shape is not None and len(shape) == 5 and not quantized


def _weights(field: Field, dequantizer: gs.Node) -> NDArray[Any] | str | None:
    """Returns the real values behind a DequantizeLinear, why they cannot be had, or None for computed ones."""
    reader = read_linear(field, dequantizer)
    if isinstance(reader, str):
        return reader
    integers = field.values(dequantizer.inputs[0])
    if integers is None:
        quantizer = _producer(dequantizer.inputs[0], "QuantizeLinear")
        real = field.fold(quantizer.inputs[0]) if quantizer is not None else None
        if quantizer is None or real is None:
            return None
        writer = read_linear(field, quantizer)
        if isinstance(writer, str):
            return writer
        integers = _quantized(real, writer)
    return "its weight is in no plain integer type" if integers is None else _real(integers, reader)


def _quantized(real: NDArray[Any], writer: Linear) -> NDArray[Any] | None:
    point = np.zeros(1, np.uint8) if writer.zero_point is None else writer.zero_point
    return quantize(real, writer.scale, point, writer.axis) if str(point.dtype) in EMULATED else None


def _real(integers: NDArray[Any], reader: Linear) -> NDArray[Any]:
    return dequantize(integers, reader.scale, reader.zero_point, reader.axis)
