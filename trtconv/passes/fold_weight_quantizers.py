"""Quantises deconvolution weights beforehand where a target forgets to."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.passes.base import NodePass, Operation, Refusal
from trtconv.passes.quantized import read_linear
from trtconv.quant import along, limits


class FoldWeightQuantizers(NodePass):
    """Folds the QuantizeLinear of a deconvolution's weight: the model then holds the integers themselves.

    Where TensorRT 8.6 has no int8 kernel (groups, 3-D, an input that is not quantised) it falls back to float, and then
    takes the float weights in front of the quantiser: up to 2e-2 relative error. Integers leave it no choice.
    """

    name: ClassVar[str] = "fold-weight-quantizers"
    fixes: ClassVar[tuple[str, ...]] = ()
    ops: ClassVar[frozenset[str]] = frozenset({"ConvTranspose"})

    def visit(self, operation: Operation) -> str | Refusal | None:
        field, node = operation.field, operation.node
        assert isinstance(node, gs.Node)
        if not operation.target.before(9) or len(node.inputs) < 2:
            return None
        dequantizer = _producer(node.inputs[1], "DequantizeLinear")
        quantizer = _producer(dequantizer.inputs[0], "QuantizeLinear") if dequantizer is not None else None
        weights = field.fold(quantizer.inputs[0]) if quantizer is not None else None
        if dequantizer is None or quantizer is None or weights is None:
            return None
        linear = read_linear(field, quantizer)
        if isinstance(linear, str):
            return Refusal(linear)
        if linear.zero_point is None or str(linear.zero_point.dtype) not in ("int8", "uint8"):
            return Refusal("its zero point is missing or neither int8 nor uint8")
        dtype = str(linear.zero_point.dtype)
        point = along(linear.zero_point.astype(np.int32), linear.axis, weights.ndim)
        integers = np.rint(weights / along(linear.scale, linear.axis, weights.ndim)) + point
        values = np.clip(integers, *limits(dtype)).astype(dtype)
        name = node.name or node.op
        constant = field.constant(f"{name}.weight_{dtype}", values)
        made = field.node(
            "DequantizeLinear",
            f"{name}/Dequantize",
            [constant, *dequantizer.inputs[1:]],
            f"{name}.weight",
            **dequantizer.attrs,
        )
        node.inputs[1] = made.outputs[0]
        field.replace(node, [made, node])
        return f"weight {list(weights.shape)} quantised beforehand to {dtype}"


def _producer(tensor: gs.Tensor, op: str) -> gs.Node | None:
    node = tensor.inputs[0] if tensor.inputs else None
    return node if node is not None and node.op == op else None
