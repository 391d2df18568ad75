"""Moves the scales of weights from the input to the output channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.graph.model import OnnxModel
from trtconv.graph.quantization import along, dequantize, quantize_symmetric, symmetric_scale
from trtconv.graph.scope import Scope
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.quantized import Quantizer, Weights, has_linear, read_linear, read_weights

OUTPUT_AXIS = {"Conv": 0, "ConvTranspose": 1}
"""Axis of the output channels in the weight. ConvTranspose weights are (C_in, C_out/group, k...)."""


_ROUNDED = 0.55
"""How many steps rounding to integers may move a value: a half, and what a scale in float16 adds."""


class MoveChannelScales(NodePass):
    """Moves per-channel scales of deconvolution weights from C_in (axis 0) to C_out (axis 1).

    TensorRT scales by output channel whatever the axis says: 0.4 to 0.9 relative error on 8.6, no message. The new
    scales are what a per-output-channel quantiser gives: from the float weights where the model has them and its own
    quantiser only rounds them, else from the dequantised ones. The edit says how far those are from the model's own.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float[2] s = {0.1,0.2}, int8[2] z = {0,0}>
        { d = DequantizeLinear <axis = 0> (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 4, 4] x) => (float[1, 3,p,q] y)
        <int8[2, 3, 1, 1] weight_int8 = {16, 25, 32, 127, 127, 127}, float[3] weight_scale = {0.0062992126,
            0.007874016, 0.009448819}, int8[3] weight_zero_point = {0, 0, 0}>
        {
          dq = DequantizeLinear <axis = 1> (weight_int8, weight_scale, weight_zero_point)
          y = ConvTranspose (x, dq)
        }
    """

    name = "move-channel-scales"
    fixes = ("TC301",)
    safety = "within tolerance"
    requantizes = True
    ops = frozenset(OUTPUT_AXIS)

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return has_linear(model) and super().may_act(model, target)

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        inputs = scope.columns.inputs[index]
        source = scope.producers.get(inputs[1]) if len(inputs) > 1 else None
        return source is not None and scope.columns.ops[source] == "DequantizeLinear"

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        linear = read_linear(field, node.inputs[1].inputs[0])
        if isinstance(linear, str):
            return Refusal(linear)
        if linear.scale.size == 1:
            return None
        goal = OUTPUT_AXIS[node.op]
        if linear.axis == goal:
            return None
        weights = _weights(field, linear)
        if isinstance(weights, str):
            return Refusal(weights)
        if weights.computed.ndim <= goal:
            return Refusal(f"its weights have no axis {goal}: {list(weights.computed.shape)}")
        axis = None if _shares_scales(node, target) else goal
        return _requantize(field, node, linear, weights, axis)


def _shares_scales(node: gs.Node, target: Target) -> bool:
    """Whether only one scale for all is safe: axis 1 is the same channel of every group, which 8.x gets wrong."""
    return bool(node.op == "ConvTranspose" and node.attrs.get("group", 1) > 1 and target.before(10))


def _weights(field: Field, linear: Quantizer) -> Weights | str:
    """Returns the weights behind a DequantizeLinear; float ones only where its quantiser does no more than round."""
    weights = read_weights(field, linear)
    if isinstance(weights, str) or weights.original is None:
        return weights
    away = np.abs(weights.computed.astype(np.float32) - weights.original.astype(np.float32))
    near = away <= _step(linear, weights.computed) * _ROUNDED
    return weights if near.all() else Weights(weights.computed, None)


def _step(linear: Quantizer, weights: NDArray[Any]) -> NDArray[np.float32]:
    """Returns a quantiser's scales, shaped to broadcast."""
    return along(linear.scale.astype(np.float32), linear.axis, weights.ndim)


def _requantize(field: Field, node: gs.Node, linear: Quantizer, weights: Weights, axis: int | None) -> str | Refusal:
    name = label(node)
    real = weights.computed if weights.original is None else weights.original
    scales = symmetric_scale(real, axis, linear.scale.dtype)
    integers = quantize_symmetric(real, scales, axis or 0)
    off = np.abs(dequantize(integers, scales, None, axis or 0).astype(np.float32) - weights.computed.astype(np.float32))
    new = along(scales.astype(np.float32), axis or 0, real.ndim)
    # Twice what rounding can do: only scales that their type cannot hold get there.
    if (off > _step(linear, real) + new).any():
        return Refusal(f"scales of the output channels in {scales.dtype} do not hold its weights")
    scale = field.constant(f"{name}.weight_scale", scales)
    point = field.constant(f"{name}.weight_zero_point", np.zeros(scales.shape, np.int8))
    attrs = {} if axis is None else {"axis": axis}
    nodes = []
    if weights.original is not None:
        source = linear.node.inputs[0].inputs[0].inputs[0]
        nodes.append(field.node("QuantizeLinear", f"{name}/Quantize", [source, scale, point], f"{name}.q", **attrs))
        quantized = nodes[0].outputs[0]
    else:
        quantized = field.constant(f"{name}.weight_int8", integers)
    nodes.append(field.node("DequantizeLinear", f"{name}/Dequantize", [quantized, scale, point], f"{name}.dq", **attrs))
    node.inputs[1] = nodes[-1].outputs[0]
    field.replace(node, [*nodes, node])
    moved = off.max(initial=0) / (np.abs(weights.computed.astype(np.float32)).max(initial=0) or 1)
    to = "one scale for all channels" if axis is None else f"{scales.size} scales of the output channels (axis {axis})"
    origin = "dequantised" if weights.original is None else "float"
    return (
        f"{linear.scale.size} scales on axis {linear.axis} moved to {to}, from the {origin} weights:"
        f" weights are within {moved:.2g} of the model's own, relative to the largest"
    )
