"""Moves the scales of weights from the input to the output channels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.model import Field, OnnxModel, Scope
from trtconv.passes.base import NodePass, Operation, Refusal
from trtconv.passes.quantized import Linear, has_linear, read_linear
from trtconv.plan import Target
from trtconv.quant import dequantize, quantize_symmetric, symmetric_scale

OUTPUT_AXIS = {"Conv": 0, "ConvTranspose": 1}
"""Axis of the output channels in the weight. ConvTranspose weights are (C_in, C_out/group, k...)."""


class MoveChannelScales(NodePass):
    """Moves per-channel scales of deconvolution weights from C_in (axis 0) to C_out (axis 1).

    TensorRT scales by output channel whatever the axis says: 0.4 to 0.9 relative error on 8.6, no message. The new
    scales are what a per-output-channel quantiser gives, from the float weights where the model still has them, else
    from the dequantised ones; the edit says by how much the weights moved.
    """

    name: ClassVar[str] = "move-channel-scales"
    fixes: ClassVar[tuple[str, ...]] = ("TC301",)
    safety: ClassVar[str] = "within tolerance"
    ops: ClassVar[frozenset[str]] = frozenset(OUTPUT_AXIS)

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return super().may_act(model, target) and has_linear(model)

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        inputs = scope.columns.inputs[index]
        source = scope.producers.get(inputs[1]) if len(inputs) > 1 else None
        return source is not None and scope.columns.ops[source] == "DequantizeLinear"

    def visit(self, operation: Operation) -> str | Refusal | None:
        field, node = operation.field, operation.node
        assert isinstance(node, gs.Node)
        dequantizer = node.inputs[1].inputs[0] if len(node.inputs) > 1 and node.inputs[1].inputs else None
        if dequantizer is None or dequantizer.op != "DequantizeLinear":
            return None
        linear = read_linear(field, dequantizer)
        if isinstance(linear, str):
            return Refusal(linear)
        if linear.scale.size == 1:
            return None
        wanted = OUTPUT_AXIS[node.op]
        if linear.axis == wanted:
            return None
        found = _real_weights(field, linear)
        if isinstance(found, str):
            return Refusal(found)
        real, has_quantizer = found
        axis = None if _shares_scales(node, operation.target) else wanted
        return _requantize(field, node, linear, real, axis, has_quantizer)


def _shares_scales(node: gs.Node, target: Target) -> bool:
    """Whether only one scale for all is safe: axis 1 is the same channel of every group, which 8.x gets wrong."""
    return bool(node.op == "ConvTranspose" and node.attrs.get("group", 1) > 1 and target.before(10))


def _real_weights(field: Field, linear: Linear) -> tuple[NDArray[Any], bool] | str:
    """Returns the real weights, and whether they are the original ones in front of a QuantizeLinear."""
    source = linear.node.inputs[0]
    values = field.fold(source)
    if values is not None:
        return dequantize(values, linear.scale, linear.zero_point, linear.axis), False
    quantizer = source.inputs[0] if source.inputs else None
    if quantizer is None or quantizer.op != "QuantizeLinear":
        return "its weight is computed at run time"
    found = read_linear(field, quantizer)
    if isinstance(found, str):
        return found
    real = field.fold(quantizer.inputs[0])
    return "its weight is computed at run time" if real is None else (real, True)


def _requantize(
    field: Field, node: gs.Node, linear: Linear, real: NDArray[Any], axis: int | None, has_quantizer: bool
) -> str:
    name = node.name or node.op
    scales = symmetric_scale(real, axis, linear.scale.dtype)
    integers = quantize_symmetric(real, scales, axis or 0)
    scale = field.constant(f"{name}.weight_scale", scales)
    point = field.constant(f"{name}.weight_zero_point", np.zeros(scales.shape, np.int8))
    attrs = {} if axis is None else {"axis": axis}
    nodes = []
    if has_quantizer:
        source = linear.node.inputs[0].inputs[0].inputs[0]
        nodes.append(field.node("QuantizeLinear", f"{name}/Quantize", [source, scale, point], f"{name}.q", **attrs))
        quantized = nodes[0].outputs[0]
    else:
        quantized = field.constant(f"{name}.weight_int8", integers)
    nodes.append(field.node("DequantizeLinear", f"{name}/Dequantize", [quantized, scale, point], f"{name}.dq", **attrs))
    node.inputs[1] = nodes[-1].outputs[0]
    field.replace(node, [*nodes, node])
    moved = np.abs(dequantize(integers, scales, None, axis or 0) - real).max(initial=0)
    moved /= np.abs(real).max(initial=0) or 1
    to = "one scale for all channels" if axis is None else f"{scales.size} scales of the output channels (axis {axis})"
    origin = "from the float weights" if has_quantizer else "from the dequantised weights"
    return (
        f"{linear.scale.size} scales on axis {linear.axis} moved to {to}, {origin}:"
        f" weights are within {moved:.2g} of those, relative to the largest"
    )
