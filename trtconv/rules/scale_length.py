"""TC302."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.views import Linear
from trtconv.rules.base import LinearRule


class ScaleLength(LinearRule):
    """The number of scales is not the size of their axis.

    What it checks:
        The length of every per-channel scale against the axis that it is for (axis 1 where none is written).
    Why TensorRT cares:
        It refuses the model ("The number of scales is not equal to the number of output channels") or, in older
        versions, reads beyond the scales. ONNX Runtime refuses it as well, so nobody can say what was meant.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float[2] s = {0.1,0.2}, int8[2] z = {0,0}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y)
          <int8[2,3,1,1] w = {1,2,3,4,5,6}, float[3] s = {0.1,0.2,0.3}, int8[3] z = {0,0,0}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose (x, d) }
    Fix:
        Write the axis that the scales are for, or export as many scales as that axis has channels.
    Source:
        ONNX operator DequantizeLinear; parser of RTX 1.7.
    """

    code = "TC302"
    name = "scale-length"
    fix = "Write the axis that the scales are for, or quantise again with one scale a channel."

    def fault(self, linear: Linear, target: Target) -> str | None:
        scale = linear.scale
        shape = linear.scope.shape(linear.node.input[0])
        if scale is None or scale.size == 1 or shape is None:
            return None
        axis = linear.attributes.get("axis", 1)
        if not -len(shape) <= axis < len(shape):
            return f"axis {axis} does not exist in {list(shape)}"
        expected = shape[axis]
        if expected is None or expected == scale.size:
            return None
        layer = linear.weight_of
        op = layer.op_type if layer is not None else ""
        return (
            f"{expected} {_channels(op, axis % len(shape))}, {scale.size} scales:"
            f" {_fitting(op, shape, scale.size, _group(layer))} (axis {axis} of {list(shape)})"
        )


def _channels(op: str, axis: int) -> str:
    names = {"Conv": ("output channels", "input channels"), "ConvTranspose": ("input channels", "output channels")}
    return names[op][axis] if op in names and axis < 2 else f"channels on axis {axis}"


def _group(layer: onnx.NodeProto | None) -> int:
    return 1 if layer is None else int(attribute(layer, "group", 1))


def _fitting(op: str, shape: Sequence[int | None], count: int, group: int) -> str:
    axes = [axis for axis, size in enumerate(shape) if size == count]
    if not axes and op == "ConvTranspose" and group > 1 and shape[1] is not None and count == shape[1] * group:
        return f"these fit the output channels of all {group} groups together"
    if not axes:
        return "they fit no axis"
    return f"these fit the {_channels(op, axes[0])}" if len(axes) == 1 else f"these fit axes {axes}"
