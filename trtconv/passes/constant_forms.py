"""Quantised constants in forms that TensorRT takes none of."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.graph.quantization import along, dequantize, dequantize_blocks, over_blocks, scale_fault
from trtconv.graph.scope import Scope
from trtconv.graph.views import Linear
from trtconv.passes.base import NodePass, Refusal

_FOREIGN = frozenset({"uint2", "int2", "uint4", "float8_e5m2", "float8_e5m2fnuz", "float8_e4m3fnuz"})
"""Element types, as NumPy names them, that its parser has no quantised weights of."""
_NEWER = frozenset({"int4", "float8_e4m3fn"})
"""Those that TensorRT 8 has not."""
_NARROW = frozenset({"int4", "uint4"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})


class SettleConstants(NodePass):
    """Writes quantised constants of which TensorRT takes no quantised form as what they mean: the same numbers.

    A constant that is moved in front of its DequantizeLinear is stored as it is behind; a channel or block whose
    scale is 0 becomes zeros with the scale 1. Folded into float initializers are single numbers without axes, uint4,
    uint2 and int2, the float8 types beside E4M3, int4 around another zero point than 0, and what is quantised in blocks
    for a convolution or along an axis in front of the last two; for TensorRT 8 all that is int4, float8 or in blocks.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2] x) => (float[1,2] y) <int8 two = {20}, float s = {0.1}, int8 z = {0}>
        { e = DequantizeLinear (two, s, z)
          y = Pow (x, e) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2] x) => (float[1, 2] y) <float e = {2}>
        {
          y = Pow (x, e)
        }
    """

    name = "settle-quantized-constants"
    ops = frozenset({"DequantizeLinear"})

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        # What is computed of computed values costs more to look at; a constant is moved by nodes with one input.
        source = scope.producer(scope.columns.inputs[index][0])
        return source is None or source.op_type not in ("QuantizeLinear", "DynamicQuantizeLinear")

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        linear = Linear(field.scope, field.index(node))
        if linear.scale is None or linear.asked_type or (linear.has_zero_point and linear.zero_point is None):
            return None
        values = field.fold(node.inputs[0])
        if values is None or values.dtype == np.int32 or not linear.scale.size:
            return None
        if linear.zero_point is not None and linear.zero_point.dtype != values.dtype:
            # No model of ONNX's; what reads it says so.
            return None
        if _has_no_form(linear, values, target):
            return _folded(field, node, linear, values)
        return _settled(field, node, linear, values)


def _blocks(linear: Linear) -> int:
    return int(linear.attributes.get("block_size", 0))


def _is_weight(linear: Linear) -> bool:
    return any(layer.op_type in _CONVOLUTIONS for layer in linear.weights_of)


def _has_no_form(linear: Linear, values: NDArray[np.generic], target: Target) -> bool:
    kind, axis = str(values.dtype), int(linear.attributes.get("axis", 1))
    if _blocks(linear) and (_is_weight(linear) or axis % max(1, values.ndim) < values.ndim - 2):
        return True
    if kind in _NARROW and _is_weight(linear):
        return False  # widen-int4-weights keeps them quantised.
    if target.before(9) and (_blocks(linear) or kind in _NEWER):
        return True
    shifted = linear.zero_point is not None and bool((linear.zero_point.astype(np.float32) != 0).any())
    return values.ndim == 0 or kind in _FOREIGN or (kind == "int4" and shifted)


def _folded(field: Field, node: gs.Node, linear: Linear, values: NDArray[np.generic]) -> str | Refusal:
    scale, point, axis = linear.scale, linear.zero_point, int(linear.attributes.get("axis", 1))
    assert scale is not None
    what = f"{values.dtype} {list(values.shape)} folded into a {scale.dtype} initializer"
    if not np.isfinite(scale.astype(np.float32)).all():
        return Refusal(f"its {scale_fault(scale)}")
    if _blocks(linear):
        real = dequantize_blocks(values, scale, point, axis, _blocks(linear))
        if real is None:
            return Refusal(f"its scales {list(scale.shape)} do not fit blocks of {list(values.shape)}")
    elif isinstance(linear.channels, str):
        return Refusal(linear.channels)
    else:
        real = dequantize(values, scale, point, linear.channels[0])
    field.fold_into(node, real)
    return what


def _settled(field: Field, node: gs.Node, linear: Linear, values: NDArray[np.generic]) -> str | Refusal | None:
    """Stores a constant that is moved, and gives channels with the scale 0 another one."""
    parts, scale = [], linear.scale
    assert scale is not None
    if field.values(node.inputs[0]) is None:
        parts.append("stored as it is behind what moves it")
    empty = scale == 0
    if empty.any():
        healed = np.where(empty, np.ones_like(scale), scale)
        spread = _spread(linear, empty, values.shape)
        # 0 times a code that is no number is none either.
        if spread is None or scale_fault(healed) or not np.isfinite(values.astype(np.float32)).all():
            return Refusal(f"its {scale_fault(scale)}")
        zero = None if linear.zero_point is None else _spread(linear, linear.zero_point, values.shape)
        values = np.where(spread, np.zeros((), values.dtype) if zero is None else zero, values)
        node.inputs[1] = field.constant(f"{label(node)}.scale", healed)
        parts.append(f"{int(empty.sum())} {'blocks' if _blocks(linear) else 'channels'} of scale 0 written as zeros")
    if not parts:
        return None
    node.inputs[0] = field.constant(f"{node.inputs[0].name}.stored", values)
    field.replace(node, [node])
    return ", ".join(parts)


def _spread(linear: Linear, scales: NDArray[np.generic], shape: tuple[int, ...]) -> NDArray[np.generic] | None:
    """Returns what there is one of for each scale as it belongs to each value; None where scales do not fit values."""
    if _blocks(linear):
        return over_blocks(scales, shape, int(linear.attributes.get("axis", 1)), _blocks(linear))
    return None if isinstance(linear.channels, str) else along(scales, linear.channels[0], len(shape))
