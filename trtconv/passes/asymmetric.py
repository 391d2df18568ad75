"""What to do with quantisers that TensorRT does not have: zero points other than 0, 16 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray
from onnx import TensorProto, helper

from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.graph.model import OnnxModel
from trtconv.graph.quantization import EMULATED, along, dequantize, limits, quantize_symmetric, symmetric_cover
from trtconv.passes.base import Pass, PassResult
from trtconv.passes.quantized import Group, Quantizer, each_group, each_pad, has_linear, pad_value
from trtconv.passes.rounding import ROUND_OPSET, round_clipped
from trtconv.passes.shift_uint8 import substitute

_NEARLY = 1 - 1e-6
"""Two bounds this close are one: float32 does not tell them apart much better."""


def _is_foreign(group: Group) -> bool:
    """Whether TensorRT has no such quantiser."""
    if group.dtype is None:
        return any(linear.zero_point is not None for linear in group.linears) and bool(group.zero_points - {0})
    return (group.dtype != "int8" and group.dtype in EMULATED) or bool(group.zero_points - {0})


def _obstacle(group: Group) -> str:
    """Returns why a group cannot be written otherwise, or an empty string."""
    if group.obstacle:
        return group.obstacle
    if any(linear.zero_point is None for linear in group.linears) or group.dtype not in EMULATED:
        return "its nodes have different integer types or no zero point"
    if len(group.zero_points) != 1 and group.movers:
        return f"its nodes have different zero points {sorted(group.zero_points)}"
    if group.movers and any(linear.scale.size > 1 for linear in group.linears):
        return "it quantises per channel, and values move between channels"
    channels: dict[int, int] = {}
    for linear in group.linears:
        if linear.scale.size > 1 and linear.rank is None:
            return f"the rank of {linear.quantized.name!r} is not known"
        if linear.scale.size > 1 and channels.setdefault(linear.axis, linear.scale.size) != linear.scale.size:
            return "its nodes have different numbers of scales"
    return ""


class _AsymmetricPass(Pass):
    """A pass over the groups of quantised tensors that TensorRT does not have."""

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return has_linear(model)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        result = PassResult()
        for field, group in each_group(model):
            if group.linears and _is_foreign(group):
                reason = _obstacle(group) or self._obstacle(field, group)
                if reason:
                    result += PassResult(skipped=(Skip(self.name, group.name, reason),))
                else:
                    result += PassResult((Edit(self.name, group.name, self._rewrite(field, group)),))
        return result

    def _obstacle(self, field: Field, group: Group) -> str:
        raise NotImplementedError

    def _rewrite(self, field: Field, group: Group) -> str:
        raise NotImplementedError


class ComputeAsymmetricInFloat(_AsymmetricPass):
    """Computes asymmetric quantisation in float: Div, Round, Clip and Mul, bit for bit the same numbers.

    Each DequantizeLinear keeps its own zero point. The layers behind run in float; with --requantize they run in int8,
    on other numbers.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, int8 z = {3}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
        <float scale = {0.1}, float low = {-131}, float high = {124}, float scale2 = {0.1}>
        {
          ratio = Div (x, scale)
          rounded = Round (ratio)
          q = Clip (rounded, low, high)
          y = Mul (q, scale2)
        }
    """

    name = "compute-asymmetric-in-float"
    fixes = ("TC306", "TC308")

    def _obstacle(self, field: Field, group: Group) -> str:
        for linear in group.linears:
            if field.dtype(linear.node.inputs[0]) == "int32":
                return f"{linear.node.op} {linear.node.name!r} takes int32"
        for pad in each_pad(group):
            fill = pad_value(pad)
            if fill is not None and field.number(fill) is None:
                return f"Pad {pad.name!r} fills with what is not one constant integer"
        return ""

    def _rewrite(self, field: Field, group: Group) -> str:
        point = min(group.zero_points)
        for pad in each_pad(group):
            fill = pad_value(pad)
            value = 0 if fill is None else field.number(fill)
            assert value is not None
            shifted = field.constant(f"{pad.name}.fill", np.array(value - point, np.float32))
            pad.inputs = [*pad.inputs[:2], shifted, *pad.inputs[3:]]
        dequantizers = [linear for linear in group.linears if not linear.quantizes]
        weights = [linear for linear in dequantizers if field.values(linear.node.inputs[0]) is not None]
        for linear in group.linears:
            if not any(linear is weight for weight in weights):
                field.replace(linear.node, _emulate(field, linear, group))
        self._fold_constants(field, group, point)
        for linear in weights:
            _fold_weight(field, linear)
        for node in group.movers:
            field.replace(node, [node])
        single = all(linear.scale.dtype == np.float32 for linear in group.linears)
        how = "float, bit for bit" if single else f"float32, the same numbers for the same {_half(group)} values"
        return f"{group.dtype} around {sorted(group.zero_points)} computed in {how}"

    def _fold_constants(self, field: Field, group: Group, point: int) -> None:
        """Gives constants that go through movers as what they stand for, an integer in float."""
        for tensor in group.moved_constants:
            values = field.values(tensor)
            assert values is not None
            shifted = (values.astype(np.int64) - point).astype(np.float32)
            substitute(group, tensor, field.constant(f"{tensor.name}.float", shifted))


def _half(group: Group) -> str:
    """Returns the type of the scales that are not float32."""
    return next(str(linear.scale.dtype) for linear in group.linears if linear.scale.dtype != np.float32)


def _point(linear: Quantizer) -> NDArray[np.float32]:
    """Returns a node's zero point, shaped to broadcast."""
    assert linear.zero_point is not None
    return along(linear.zero_point.astype(np.float32), linear.axis, linear.rank or 1)


def _origin(group: Group, linear: Quantizer) -> NDArray[np.float32]:
    """Returns what was subtracted from the quantised values that a DequantizeLinear reads.

    Only a group of one QuantizeLinear has several zero points; in others all nodes have the same one.
    """
    return next((_point(other) for other in group.linears if other.quantizes), _point(linear))


def _emulate(field: Field, linear: Quantizer, group: Group) -> list[gs.Node]:
    """Returns float nodes in place of a QuantizeLinear or DequantizeLinear; between them goes q - zero_point."""
    node, name = linear.node, label(linear.node)
    rank = linear.rank or 1
    scale = field.constant(f"{name}.scale", along(linear.scale.astype(np.float32), linear.axis, rank))
    output = node.outputs[0]
    if not linear.quantizes:
        return _dequantize(field, linear, scale, _origin(group, linear) - _point(linear))
    cast = _widen(field, linear, name)
    source = cast[0].outputs[0] if cast else node.inputs[0]
    node.outputs.clear()
    low, high = limits(group.dtype or "int8")
    point = _point(linear)
    divide = field.node("Div", f"{name}/Div", [source, scale], f"{name}.ratio")
    if field.model.opset < ROUND_OPSET:
        ends = (np.float32(low) - point, np.float32(high) - point)
        return [*cast, divide, *round_clipped(field, name, divide.outputs[0], ends, output)]
    rounded = field.node("Round", f"{name}/Round", [divide.outputs[0]], f"{name}.rounded")
    if point.ndim == 0:
        bounds = [
            field.constant(f"{name}.{w}", _scalar(np.float32(v) - point)) for w, v in (("low", low), ("high", high))
        ]
        return [*cast, divide, rounded, field.node("Clip", f"{name}/Clip", [rounded.outputs[0], *bounds], output)]
    lowest, highest = (field.constant(f"{name}.{w}", np.float32(v) - point) for w, v in (("low", low), ("high", high)))
    capped = field.node("Min", f"{name}/Min", [rounded.outputs[0], highest], f"{name}.capped")
    return [*cast, divide, rounded, capped, field.node("Max", f"{name}/Max", [capped.outputs[0], lowest], output)]


def _widen(field: Field, linear: Quantizer, name: str) -> list[gs.Node]:
    """Returns the Cast that makes the input of a QuantizeLinear float32, if it is not.

    ONNX Runtime divides and multiplies in float32 whatever the type of the scale. Where the quotient is rounded to
    float16 before it is rounded to a step, one in a hundred ends on the wrong side.
    """
    source = linear.node.inputs[0]
    if linear.scale.dtype == np.float32 and field.dtype(source) in (None, "float32"):
        return []
    return [field.node("Cast", f"{name}/Cast", [source], f"{name}.float", to=int(TensorProto.FLOAT))]


def _dequantize(field: Field, linear: Quantizer, scale: gs.Tensor, distance: NDArray[np.float32]) -> list[gs.Node]:
    """Returns float nodes in place of a DequantizeLinear; the distance is from its zero point to the quantiser's."""
    node, name = linear.node, label(linear.node)
    output, source = node.outputs[0], node.inputs[0]
    code = int(node.attrs.get("output_dtype", 0)) or helper.np_dtype_to_tensor_dtype(linear.scale.dtype)
    node.outputs.clear()
    nodes: list[gs.Node] = []
    if distance.any():
        constant = field.constant(f"{name}.distance", distance)
        nodes.append(field.node("Add", f"{name}/Add", [source, constant], f"{name}.shifted"))
        source = nodes[-1].outputs[0]
    if code == TensorProto.FLOAT:
        return [*nodes, field.node("Mul", f"{name}/Mul", [source, scale], output)]
    product = field.node("Mul", f"{name}/Mul", [source, scale], f"{name}.real")
    return [*nodes, product, field.node("Cast", f"{name}/Cast", [product.outputs[0]], output, to=code)]


def _scalar(value: Any) -> NDArray[Any]:
    array: NDArray[Any] = np.asarray(value)
    return array.reshape(())


def _fold_weight(field: Field, linear: Quantizer) -> None:
    values = field.values(linear.node.inputs[0])
    assert values is not None
    field.fold_into(linear.node, dequantize(values, linear.scale, linear.zero_point, linear.axis))


class RequantizeSymmetric(_AsymmetricPass):
    """Requantises asymmetric tensors symmetrically in int8. Changes numbers: runs only when asked (--requantize).

    The new scale covers the old range, and what the old one cut off is cut off in front (a Relu, Max or Min), since
    quantisers around the end of their range often stand for an activation. So each value moves by at most half an old
    and half a new step; the edit says how much that is.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, int8 z = {3}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
        <float Min = {12.400001}, float scale = {0.10234375}, int8 zero_point = {0}, float scale2 = {0.10234375},
            int8 zero_point2 = {0}>
        {
          cut = Min (x, Min)
          q = QuantizeLinear (cut, scale, zero_point)
          y = DequantizeLinear (q, scale2, zero_point2)
        }
    """

    name = "requantize-symmetric"
    fixes = ("TC306", "TC308")
    safety = "changes numbers, only when asked"
    requantizes = True
    on_request = True
    flag = "requantize"

    def _obstacle(self, field: Field, group: Group) -> str:
        if any(True for _ in each_pad(group)):
            return "a Pad fills quantised values"
        if group.moved_constants:
            return "constants move among its values"
        if any((_origin(group, linear) != _point(linear)).any() for linear in group.linears):
            return "it dequantises around another zero point than it quantises"
        return ""

    def _rewrite(self, field: Field, group: Group) -> str:
        worst = 0.0
        for linear in group.linears:
            cut = _cut_range(field, linear, group.dtype or "int8") if linear.quantizes else []
            worst = max(worst, self._requantize(field, linear, group.dtype or "int8"))
            field.replace(linear.node, [*cut, linear.node])
        for node in group.movers:
            field.replace(node, [node])
        points = sorted(group.zero_points)
        return f"{group.dtype} around {points} requantised in int8: values move by at most {_up(worst)}"

    def _requantize(self, field: Field, linear: Quantizer, dtype: str) -> float:
        """Gives a node its symmetric scale; returns by how much a value may move, in the tensor's own unit."""
        old, cover = _covers(linear, dtype)
        scale = cover.reshape(linear.scale.shape).astype(linear.scale.dtype)
        name = label(linear.node)
        constant = field.values(linear.node.inputs[0]) if not linear.quantizes else None
        if constant is not None:
            real = dequantize(constant, linear.scale, linear.zero_point, linear.axis)
            quantized = quantize_symmetric(real, scale, linear.axis)
            linear.node.inputs[0] = field.constant(f"{name}.int8", quantized)
        linear.node.inputs[1] = field.constant(f"{name}.scale", scale)
        linear.node.inputs[2] = field.constant(f"{name}.zero_point", np.zeros(linear.scale.shape, np.int8))
        if linear.node.attrs.get("output_dtype"):
            linear.node.attrs["output_dtype"] = 3
        return float((old + cover).max() / 2)


def _covers(linear: Quantizer, dtype: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the scales of a quantiser, and the int8 scales that cover their ranges; one entry a channel."""
    assert linear.zero_point is not None
    old = linear.scale.astype(np.float64).reshape(-1)
    points = np.broadcast_to(linear.zero_point.reshape(-1), old.shape)
    return old, np.array([symmetric_cover(s, int(z), dtype) for s, z in zip(old, points, strict=True)])


def _cut_range(field: Field, linear: Quantizer, dtype: str) -> list[gs.Node]:
    """Cuts the input of a QuantizeLinear to the range that its new scale would exceed; returns the new nodes."""
    assert linear.zero_point is not None
    node, name = linear.node, label(linear.node)
    old, cover = _covers(linear, dtype)
    points = np.broadcast_to(linear.zero_point.reshape(-1), old.shape).astype(np.float64)
    low, high = ((limit - points) * old for limit in limits(dtype))
    bounds = [("Max", low, -128 * cover), ("Min", high, 127 * cover)]
    nodes = []
    for op, limit, new in bounds:
        if np.all(np.abs(limit) > np.abs(new) * _NEARLY):
            continue
        bound = along(limit.reshape(linear.scale.shape).astype(linear.scale.dtype), linear.axis, linear.rank or 0)
        values = field.values(node.inputs[0])
        if values is not None:
            cut = np.maximum(values, bound) if op == "Max" else np.minimum(values, bound)
            node.inputs[0] = field.constant(f"{name}.cut", cut)
        elif op == "Max" and not limit.any():
            nodes.append(field.node("Relu", f"{name}/Relu", [node.inputs[0]], f"{name}.cut"))
            node.inputs[0] = nodes[-1].outputs[0]
        else:
            limits_ = field.constant(f"{name}.{op}", bound)
            nodes.append(field.node(op, f"{name}/{op}", [node.inputs[0], limits_], f"{name}.cut"))
            node.inputs[0] = nodes[-1].outputs[0]
    return nodes


def _up(value: float) -> str:
    """Returns a positive number with three digits, rounded up."""
    exponent = math.floor(math.log10(value)) - 2 if value > 0 else 0
    return f"{math.ceil(value / 10**exponent) * 10**exponent:.3g}"
