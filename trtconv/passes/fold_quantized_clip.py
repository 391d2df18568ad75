"""Takes Clip nodes out of the way between quantisers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.graph.model import OnnxModel
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.quantized import Quantizer, has_linear, read_linear

_INTEGERS = ("int4", "uint4", "int8", "uint8", "int16", "uint16")


class FoldQuantizedClip(NodePass):
    """Clips constants beforehand, and activations in front of their QuantizeLinear: the same numbers.

    Brevitas limits weights to -127 and 127 by a Clip behind them, and narrow activations likewise. TensorRT's builder
    takes a quantised constant in front of a DequantizeLinear only, and computes nothing in int8 but its own layers.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4] x) => (float[1,1,4] y)
        <int8[1,2,1] w = {-128, 90}, float s = {0.01}, int8 z = {0}, int8 low = {-127}, int8 high = {50}>
        { c = Clip (w, low, high)  d = DequantizeLinear (c, s, z)  y = Conv (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 4] x) => (float[1, 1, 4] y)
        <float s = {0.01}, int8 z = {0}, int8[1, 2, 1] c = {-127, 50}>
        {
          d = DequantizeLinear (c, s, z)
          y = Conv (x, d)
        }
    """

    name = "fold-quantized-clip"
    ops = frozenset({"Clip"})

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return has_linear(model) and super().may_act(model, target)

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        tensor = node.inputs[0]
        values = field.values(tensor)
        if (str(values.dtype) if values is not None else field.dtype(tensor)) not in _INTEGERS:
            return None
        bounds = _bounds(field, node)
        if isinstance(bounds, str):
            return Refusal(bounds)
        if values is not None:
            clipped = np.clip(values.astype(np.int32), *bounds).astype(values.dtype)
            field.fold_into(node, clipped)
            return f"{values.dtype} {list(values.shape)} clipped beforehand"
        return _clip_in_front(field, node, bounds)


def _bounds(field: Field, node: gs.Node) -> tuple[int, int] | str:
    """Returns the limits of a Clip of integers, or why they are not known."""
    limits = []
    for slot, default in ((1, -(1 << 15)), (2, (1 << 16) - 1)):
        is_there = len(node.inputs) > slot and not node.inputs[slot].is_empty()
        value = field.number(node.inputs[slot]) if is_there else default
        if value is None:
            return f"its limit {node.inputs[slot].name!r} is computed at run time, or not one integer"
        # No type of these integers has more.
        limits.append(min(max(value, -(1 << 16)), 1 << 16))
    return limits[0], limits[1]


def _clip_in_front(field: Field, node: gs.Node, bounds: tuple[int, int]) -> str | Refusal | None:
    """Clips what a QuantizeLinear takes, instead of what it gives."""
    quantizer = node.inputs[0].inputs[0] if node.inputs[0].inputs else None
    if quantizer is None or quantizer.op != "QuantizeLinear":
        return None
    if field.escapes(node.inputs[0]) or len(node.inputs[0].outputs) > 1:
        return Refusal("what it clips is used without it too")
    linear = read_linear(field, quantizer)
    if isinstance(linear, str):
        return Refusal(linear)
    if linear.scale.size > 1:
        return Refusal("the values that it clips have several scales")
    name = label(node)
    limits = [
        field.constant(f"{name}.{end}", limit) for end, limit in zip(("min", "max"), _real(linear, bounds), strict=True)
    ]
    front = field.node("Clip", f"{name}/Clip", [quantizer.inputs[0], *limits], f"{name}.clipped")
    quantizer.inputs[0] = front.outputs[0]
    field.take_over(node, quantizer, [front, quantizer])
    return f"clips in front of {quantizer.name or 'its QuantizeLinear'}, to {bounds[0]} and {bounds[1]} of its steps"


def _real(linear: Quantizer, bounds: tuple[int, int]) -> list[NDArray[Any]]:
    point = 0 if linear.zero_point is None else int(linear.zero_point.reshape(-1)[0])
    scale = linear.scale.reshape(-1)[0]
    return [np.asarray((bound - point) * scale, linear.scale.dtype) for bound in bounds]
