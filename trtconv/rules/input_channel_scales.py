"""TC301."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule

_OUTPUT_AXIS = {"Conv": 0, "ConvTranspose": 1}


class InputChannelScales(LinearRule):
    """A weight's scales run along its input channels; TensorRT applies them to the output channels.

    What it checks:
        The axis of the DequantizeLinear of every Conv and ConvTranspose weight with one scale a channel. The output
        channels are axis 0 of a Conv weight and axis 1 of a ConvTranspose weight (C_in, C_out/group, k...).
    Why TensorRT cares:
        It scales by output channel whatever the axis says: 0.4 to 0.9 relative error, no message, also where both
        counts agree; where they do not, "expected 64 output channels, got 10".
    Versions:
        Run on 8.6. pytorch-quantization (TensorRT 8.6 to 10.1) and ModelOpt's torch path write such models.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float[2] s = {0.1,0.2}, int8[2] z = {0,0}>
        { d = DequantizeLinear <axis = 0> (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float[3] s = {0.1,0.2,0.3}, int8[3] z = {0,0,0}>
        { d = DequantizeLinear <axis = 1> (w, s, z)
          y = ConvTranspose (x, d) }
    Fix:
        trtconv build and rewrite quantise the weight again by output channel, and say by how much it moved.
    Source:
        Measured, see docs/quantization.md; pytorch/TensorRT issue 2723.
    """

    code = "TC301"
    name = "input-channel-scales"
    fix = "Let trtconv build or rewrite move the scales, or quantise by output channel."
    by_hand = "Quantise by output channel."

    def fault(self, linear: Linear, target: Target) -> str | None:
        # Layers may share a DequantizeLinear that is right for one of them only.
        wrong = (message for layer in linear.weights_of if (message := _fault(linear, layer)) is not None)
        return "; ".join(dict.fromkeys(wrong)) or None


def _fault(linear: Linear, layer: onnx.NodeProto) -> str | None:
    """Returns what is wrong with the scales for one of the layers whose weight they are for, or None."""
    scale = linear.scale
    if scale is None or scale.size == 1 or layer.op_type not in _OUTPUT_AXIS:
        return None
    axis = linear.attributes.get("axis", 1)
    shape = linear.scope.shape(linear.node.input[0])
    goal = _OUTPUT_AXIS[layer.op_type]
    if shape is None or not -len(shape) <= axis < len(shape) or not -len(shape) <= goal < len(shape):
        return None
    if axis % len(shape) == goal or shape[axis] != scale.size:
        return None
    group = attribute(layer, "group", 1)
    # A Conv's weight holds the output channels of all groups; a ConvTranspose's those of one.
    count = shape[goal]
    channels = f"{count} output channels"
    if layer.op_type == "ConvTranspose" and group > 1 and count is not None:
        channels = f"{count * group} output channels, {count} in each of {group} groups"
    return (
        f"{scale.size} scales on axis {axis} of the weight {list(shape)} of {layer.op_type} {layer.name!r}:"
        f" TensorRT applies them to its {channels} (axis {goal})"
    )
