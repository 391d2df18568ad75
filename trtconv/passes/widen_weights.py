"""Writes the narrow weights of convolutions in int8."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.graph.quantization import along
from trtconv.graph.scope import Scope
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.quantized import Quantizer, read_linear

_LAYERS = frozenset({"Conv", "ConvTranspose"})
_LIMITS = {"int4": (-8, 7), "uint4": (0, 15)}


class WidenWeights(NodePass):
    """Writes int4 weights of convolutions as int8, with the same scales: the same numbers.

    TensorRT's builder has int4 for matrix products alone, and fails on a convolution without naming it.

    Before:
        <ir_version: 10, opset_import: ["": 21]>
        g (float[1,2,4] x) => (float[1,1,4] y) <float[1,2,1] f = {0.5, -0.25}, float s = {0.1}, int4 z = {0}>
        { q = QuantizeLinear (f, s, z)  w = DequantizeLinear (q, s, z)  y = Conv (x, w) }
    After:
        <ir_version: 10, opset_import: ["": 21]>
        g (float[1, 2, 4] x) => (float[1, 1, 4] y)
        <float s = {0.1}, int8[1, 2, 1] int8 = {5, -2}, int8 zero_point = {0}>
        {
          w = DequantizeLinear (int8, s, zero_point)
          y = Conv (x, w)
        }
    """

    name = "widen-int4-weights"
    ops = frozenset({"DequantizeLinear"})

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        node = scope.columns.nodes[index]
        return any(scope.dtype(name) in _LIMITS for name in node.input[::2])

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        if not any(user.op in _LAYERS and user.inputs[1] is node.outputs[0] for user in node.outputs[0].outputs):
            return None
        linear = read_linear(field, node)
        if isinstance(linear, str):
            return Refusal(linear)
        integers = _integers(field, node)
        if isinstance(integers, str):
            return Refusal(integers)
        kind = str(linear.zero_point.dtype) if linear.zero_point is not None else str(integers.dtype)
        shifted = integers.astype(np.int16)
        if linear.zero_point is not None:
            shifted = shifted - along(linear.zero_point.astype(np.int16), linear.axis, shifted.ndim)
        name = label(node)
        # 4 bits less any zero point of theirs fit 8 bits around 0.
        point = field.constant(f"{name}.zero_point", np.zeros(linear.scale.shape, np.int8))
        node.inputs = [field.constant(f"{name}.int8", shifted.astype(np.int8)), node.inputs[1], point]
        field.replace(node, [node])
        return f"{kind} {list(shifted.shape)} written as int8, with the same scales"


def _integers(field: Field, node: gs.Node) -> NDArray[np.generic] | str:
    """Returns the constants that a node dequantises, also those that it quantises from float ones."""
    values = field.values(node.inputs[0])
    if values is not None:
        return values
    quantizer = node.inputs[0].inputs[0] if node.inputs[0].inputs else None
    real = field.fold(quantizer.inputs[0]) if quantizer is not None and quantizer.op == "QuantizeLinear" else None
    if quantizer is None or real is None:
        return "its int4 values are computed at run time"
    writer = read_linear(field, quantizer)
    return writer if isinstance(writer, str) else _quantized(real, writer)


def _quantized(real: NDArray[np.generic], writer: Quantizer) -> NDArray[np.generic] | str:
    if writer.zero_point is None or str(writer.zero_point.dtype) not in _LIMITS:
        return "the type that it quantises to is not written"
    ratio = np.rint(real.astype(np.float32) / along(writer.scale.astype(np.float32), writer.axis, real.ndim))
    points = along(writer.zero_point.astype(np.float32), writer.axis, real.ndim)
    clipped: NDArray[np.generic] = np.clip(ratio + points, *_LIMITS[str(writer.zero_point.dtype)]).astype(np.int16)
    return clipped
