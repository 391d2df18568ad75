"""Writes operators that compute in integers as Q/DQ around the float operator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.graph.quantization import along, dequantize
from trtconv.graph.scope import Scope
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.quantized import MOVERS, moves

_DROPPED = frozenset({"channels_last", "opset"})
"""Attributes of ONNX Runtime's operators that the standard operator does not have."""


@frozen
class _Signature:
    """Where an operator keeps its parts: slots of its inputs.

    Args:
        op: The float operator.
        data: (value, scale, zero point) of each quantised input.
        output: (scale, zero point) of the output.
        bias: Slot of an int32 bias in units of the first two scales, or None.
        plain: Slots of inputs that are passed on as they are, in front of the data.
    """

    op: str
    data: tuple[tuple[int, int, int], ...]
    output: tuple[int, int]
    bias: int | None = None
    plain: tuple[int, ...] = ()


_UNARY = (((0, 1, 2),), (3, 4))
_BINARY = (((0, 1, 2), (3, 4, 5)), (6, 7))
_SIGNATURES = {
    "QLinearConv": _Signature("Conv", *_BINARY, bias=8),
    "QLinearMatMul": _Signature("MatMul", *_BINARY),
    "QGemm": _Signature("Gemm", ((0, 1, 2), (3, 4, 5)), (7, 8), bias=6),
    "QLinearAdd": _Signature("Add", *_BINARY),
    "QLinearMul": _Signature("Mul", *_BINARY),
    "QLinearAveragePool": _Signature("AveragePool", *_UNARY),
    "QLinearGlobalAveragePool": _Signature("GlobalAveragePool", *_UNARY),
    "QLinearLeakyRelu": _Signature("LeakyRelu", *_UNARY),
    "QLinearSigmoid": _Signature("Sigmoid", *_UNARY),
    "QLinearSoftmax": _Signature("Softmax", *_UNARY),
    "QLinearWhere": _Signature("Where", ((1, 2, 3), (4, 5, 6)), (7, 8), plain=(0,)),
}
_ACCUMULATORS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
_UNIT_SLOTS = {"QuantizeLinear": (1, 2), "QLinearConcat": (0, 1)}
_PER_CHANNEL_OPSET = 13
_EXACT_IN_FLOAT32 = 2**24
"""float32 holds every integer below."""


def _unit_of(scope: Scope, name: str) -> list[str] | None:
    """Returns the names of the scale and zero point of a tensor that is quantised in this graph; None for others.

    Follows nodes that only move values.
    """
    node = scope.producer(name)
    while node is not None and node.op_type in MOVERS - {"Resize"}:
        node = scope.producer(node.input[0])
    if node is None:
        return None
    signature = _SIGNATURES.get(node.op_type)
    slots = signature.output if signature is not None else _UNIT_SLOTS.get(node.op_type, ())
    return [node.input[slot] for slot in slots if slot < len(node.input) and node.input[slot]] or None


class ExpandIntegerOperators(NodePass):
    """Writes QLinearConv, QLinearMatMul, ConvInteger and their like as float operators between Q/DQ.

    TensorRT has no operators on integers; it makes int8 layers of Q/DQ itself. A result may differ by one quantisation
    step where it lies within the rounding of float32 sums (some 1e-5 of a step) from the middle between two steps. A
    Resize that interpolates integers drops fractions, so it is written with a Floor, and runs in float.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (int8[1,2] a) => (int8[1,2] y) <float s = {0.1}, int8 z = {0}, int8[2,2] b = {1,2,3,4}>
        { y = QLinearMatMul (a, s, z, b, s, z, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (int8[1, 2] a) => (int8[1, 2] y)
        <float s = {0.1}, int8 z = {0}, int8[2, 2] b = {1, 2, 3, 4}>
        {
          dequantized = DequantizeLinear (a, s, z)
          dequantized_1 = DequantizeLinear (b, s, z)
          real = MatMul (dequantized, dequantized_1)
          y = QuantizeLinear (real, s, z)
        }
    """

    name = "expand-integer-operators"
    fixes = ("TC310",)
    safety = "within tolerance"
    ops = frozenset({*_SIGNATURES, *_ACCUMULATORS, "QLinearConcat", "Resize"})

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        if node.attrs.get("channels_last"):
            return Refusal(
                "its channels come last, since ONNX Runtime laid the model out for one processor: give the model from "
                "before, or have it optimised up to ORT_ENABLE_EXTENDED"
            )
        if node.op == "Resize" and (moves(node) or _unit_of(field.scope, node.inputs[0].name) is None):
            return None
        work = _Expansion(field, node)
        if node.op in _ACCUMULATORS:
            reason = work.accumulate(_ACCUMULATORS[node.op])
        elif node.op == "QLinearConcat":
            reason = work.concat()
        elif node.op == "Resize":
            reason = work.interpolate()
        else:
            reason = work.expand(_SIGNATURES[node.op])
        if reason:
            return Refusal(reason)
        return f"{node.op} written as {'/'.join(n.op for n in work.nodes)}"


_INCOMPLETE = "it lacks an input that it must have"


class _Expansion:
    """The nodes that take the place of one integer operator."""

    def __init__(self, field: Field, node: gs.Node) -> None:
        self.field = field
        self.node = node
        self.name = label(node)
        self.nodes: list[gs.Node] = []
        self.attrs = {k: v for k, v in node.attrs.items() if k not in _DROPPED}

    def expand(self, signature: _Signature) -> str | None:
        """Puts DequantizeLinear before and QuantizeLinear behind the float operator; returns why it cannot."""
        slots = (*signature.plain, *(slot for value, scale, _ in signature.data for slot in (value, scale)))
        reason = self._obstacle(signature) if self._has(*slots) else _INCOMPLETE
        if reason:
            return reason
        if signature.op == "AveragePool" and self.attrs.get("ceil_mode") and self.attrs.get("count_include_pad"):
            # ONNX Runtime divides by the whole window even where it goes beyond the padding; AveragePool does not.
            return "with ceil_mode and count_include_pad it divides by another count than AveragePool"
        bias = None
        if signature.bias is not None and self._slot(signature.bias) is not None:
            bias = self._float_bias(signature)
            if bias is None:
                return "its bias and scales do not fit together"
        inputs = [self.node.inputs[slot] for slot in signature.plain]
        for position, slots in enumerate(signature.data):
            inputs.append(self._dequantized(*slots, axis=self._channel_axis(signature.op, position, slots[0])))
        if bias is not None:
            inputs.append(bias)
        self._finish(signature.op, inputs, signature.output)
        return None

    def concat(self) -> str | None:
        """QLinearConcat: (y_scale, y_zero_point, then x, scale, zero point of each input)."""
        data = range(2, len(self.node.inputs), 3)
        if not self._has(0, *(slot for at in data for slot in (at, at + 1))):
            return _INCOMPLETE
        inputs = [self._dequantized(at, at + 1, at + 2, axis=None) for at in data]
        self._finish("Concat", inputs, (0, 1))
        return None

    def interpolate(self) -> str | None:
        """A Resize that computes with quantised values: on the same numbers in float, and cut off as ONNX Runtime does.

        It interpolates the integers themselves, zero point and all, and drops fractions (towards 0). Q/DQ on the real
        scale would round them: another step for half of the values.
        """
        names = _unit_of(self.field.scope, self.node.inputs[0].name)
        assert names is not None
        unit = [self.field.scope.values(name) for name in names]
        if any(values is None or values.size != 1 for values in unit):
            return "its values have no constant scale and zero point, or several"
        if self.node.attrs.get("antialias"):
            return "antialias on integers is nothing that float computes: ONNX Runtime rounds between the axes"
        output = self.node.outputs[0]
        zero = unit[1] if len(unit) > 1 else None
        point = self._zero(output) if zero is None else self.field.constant(f"{self.name}.zero_point", zero)
        if point is None:
            return "its integer type is not known"
        offset = np.asarray(self.field.values(point)).reshape(()).astype(np.float32)
        one = self.field.constant(f"{self.name}.one", np.ones((), np.float32))
        self.node.outputs.clear()
        steps = self._moved_by(self._dequantized_by(0, one, point), offset, "integers")
        cut = self._cut_off(self._add("Resize", [steps, *self.node.inputs[1:]], "real", **self.attrs), point)
        steps = self._moved_by(cut, -offset, "steps")
        self.nodes.append(self.field.node("QuantizeLinear", f"{self.name}/Quantize", [steps, one, point], output))
        self.field.replace(self.node, self.nodes)
        return None

    def _moved_by(self, tensor: gs.Tensor, offset: NDArray[np.float32], label: str) -> gs.Tensor:
        """Returns a tensor plus a number."""
        if not offset:
            return tensor
        return self._add("Add", [tensor, self.field.constant(f"{self.name}.offset", offset)], label)

    def _cut_off(self, tensor: gs.Tensor, point: gs.Tensor) -> gs.Tensor:
        """Returns a tensor without its fractions, rounded towards 0."""
        values = self.field.values(point)
        if values is not None and values.dtype.kind == "u":
            return self._add("Floor", [tensor], "cut")
        size = self._add("Floor", [self._add("Abs", [tensor], "size")], "cut_size")
        return self._add("Mul", [size, self._add("Sign", [tensor], "sign")], "cut")

    def accumulate(self, op: str) -> str | None:
        """ConvInteger and MatMulInteger: exact in float32 while sums stay below 2**24, so the kernel must be known."""
        weight = self.field.values(self.node.inputs[1]) if self._has(0, 1) else None
        if weight is None:
            return "its weight is computed at run time"
        if weight.ndim < 2 or not weight.size:
            return f"its weight cannot have the shape {list(weight.shape)}"
        axis = 0 if op == "Conv" else weight.ndim - 1
        channels = self._size(3)
        if self._size(2) != 1 or channels not in (1, weight.shape[axis]):
            return "its zero points are computed at run time, or there is one for each row"
        largest = self._largest_sum(op, weight, axis)
        if largest >= _EXACT_IN_FLOAT32:
            return f"its sums may reach {largest}, and float32 is exact below {_EXACT_IN_FLOAT32}"
        # Scales have the shape of their zero points.
        points = [None if slot is None else self.field.values(slot) for slot in (self._slot(2), self._slot(3))]
        ones = [np.ones(() if point is None else point.shape, np.float32) for point in points]
        inputs = [
            self._dequantized_by(slot, self.field.constant(f"{self.name}.one", one), self._slot(slot + 2), axis)
            for slot, one in enumerate(ones)
        ]
        output = self.node.outputs[0]
        self.node.outputs.clear()
        real = self._add(op, inputs, "sums", **self.attrs)
        self.nodes.append(self.field.node("Cast", f"{self.name}/Cast", [real], output, to=6))
        self.field.replace(self.node, self.nodes)
        return None

    def _largest_sum(self, op: str, weight: NDArray[Any], axis: int) -> int:
        """Returns the largest magnitude of a sum of products: an activation is within 255 of its zero point."""
        slot = self._slot(3)
        point = None if slot is None else self.field.values(slot)
        shifted = weight.astype(np.int64)
        if point is not None:
            shifted = shifted - along(point.astype(np.int64), axis, weight.ndim)
        summed = tuple(range(1, weight.ndim)) if op == "Conv" else -2
        return int(255 * np.abs(shifted).sum(axis=summed).max(initial=0))

    def _size(self, slot: int) -> int | None:
        """Returns how many values an input has: 1 where it is missing, None where it is computed."""
        tensor = self._slot(slot)
        if tensor is None:
            return 1
        values = self.field.values(tensor)
        return None if values is None else int(values.size)

    def _count(self, slot: int) -> int | None:
        """Returns how many values an input has, by its shape where it is computed; None where nobody knows."""
        tensor = self._slot(slot)
        shape = None if tensor is None else self.field.shape(tensor)
        if self._size(slot) is not None or shape is None or None in shape:
            return self._size(slot)
        return math.prod(size for size in shape if size is not None)

    def _is_matrix_of_scales(self, slot: int) -> bool:
        """Whether a MatMul has scales in the shape of an operand, which stand as they broadcast."""
        tensor = self._slot(slot)
        shape = None if tensor is None else self.field.shape(tensor)
        return self.node.op == "QLinearMatMul" and shape is not None and len(shape) > 1

    @property
    def _is_old(self) -> bool:
        """Whether ONNX has no Q/DQ per channel yet; weights with several scales are then written in float."""
        return self.field.model.opset < _PER_CHANNEL_OPSET

    def _obstacle(self, signature: _Signature) -> str | None:
        """Returns why the operator has no form with Q/DQ, or None."""
        if signature.op == "Softmax" and int(self.node.attrs.get("opset", 13)) < _PER_CHANNEL_OPSET:
            return "it is Softmax as it was before opset 13"
        for position, (value, scale, point) in enumerate(signature.data):
            size = self._count(scale)
            if size is None or size == 1 or self._is_matrix_of_scales(scale):
                continue
            if self._is_old and (self._size(scale) is None or self.field.values(self.node.inputs[value]) is None):
                return f"opset {self.field.model.opset} has no Q/DQ per channel ({_PER_CHANNEL_OPSET} has)"
            axis = self._channel_axis(signature.op, position, value)
            shape = self.field.shape(self.node.inputs[value]) or ()
            channels = None if axis is None or not -len(shape) <= axis < len(shape) else shape[axis]
            if channels != size or self._count(point) not in (1, size):
                return f"its {size} scales of input {value} are not those of output channels"
        return None

    def _finish(self, op: str, inputs: list[gs.Tensor], output_slots: tuple[int, int]) -> None:
        output = self.node.outputs[0]
        scale = self._slot(output_slots[0])
        self.node.outputs.clear()
        if scale is None:
            self.nodes.append(self.field.node(op, f"{self.name}/{op}", inputs, output, **self.attrs))
        else:
            real = self._add(op, inputs, "real", **self.attrs)
            point = self._slot(output_slots[1]) or self._zero(output)
            rest = [scale] if point is None else [scale, point]
            self.nodes.append(self.field.node("QuantizeLinear", f"{self.name}/Quantize", [real, *rest], output))
        self.field.replace(self.node, self.nodes)

    def _zero(self, output: gs.Tensor) -> gs.Tensor | None:
        """Returns the zero point that an output without one has; QuantizeLinear alone would make uint8 of it."""
        dtype = self.field.dtype(output) or self.field.dtype(self.node.inputs[0])
        return None if dtype is None else self.field.constant(f"{self.name}.zero_point", np.zeros((), dtype))

    def _add(self, op: str, inputs: list[gs.Tensor], label: str, **attrs: Any) -> gs.Tensor:
        self.nodes.append(self.field.node(op, f"{self.name}/{op}", inputs, f"{self.name}.{label}", **attrs))
        return self.nodes[-1].outputs[0]

    def _slot(self, slot: int) -> gs.Tensor | None:
        inputs = self.node.inputs
        return inputs[slot] if slot < len(inputs) and not inputs[slot].is_empty() else None

    def _has(self, *slots: int) -> bool:
        """Whether the node has these inputs."""
        return all(self._slot(slot) is not None for slot in slots)

    def _dequantized(self, value: int, scale: int, point: int, axis: int | None) -> gs.Tensor:
        tensor = self._slot(scale)
        assert tensor is not None
        if self._is_matrix_of_scales(scale):
            return self._scaled_by(value, tensor, self._slot(point))
        return self._dequantized_by(value, tensor, self._slot(point), axis, self._count(scale))

    def _scaled_by(self, value: int, scale: gs.Tensor, point: gs.Tensor | None) -> gs.Tensor:
        """Returns an input less its zero points, times its scales, which DequantizeLinear has no axis for."""
        steps = self._in_float(self.node.inputs[value])
        if point is not None:
            steps = self._add("Sub", [steps, self._in_float(point)], "steps")
        return self._add("Mul", [steps, scale], "dequantized")

    def _in_float(self, tensor: gs.Tensor) -> gs.Tensor:
        values = self.field.values(tensor)
        if values is None:
            return self._add("Cast", [tensor], "float", to=int(onnx.TensorProto.FLOAT))
        return self.field.constant(f"{self.name}.float", values.astype(np.float32))

    def _dequantized_by(
        self, value: int, scale: gs.Tensor, point: gs.Tensor | None, axis: int | None = None, count: int | None = None
    ) -> gs.Tensor:
        scales = self.field.values(scale)
        values = self.field.values(self.node.inputs[value])
        if axis is not None and scales is not None and values is not None and scales.size > 1 and self._is_old:
            zero_point = None if point is None else self.field.values(point)
            return self.field.constant(f"{self.name}.weight", dequantize(values, scales, zero_point, axis))
        count = count if scales is None else int(scales.size)
        attrs = {"axis": axis} if axis is not None and count is not None and count > 1 else {}
        rest = [scale] if point is None else [scale, point]
        return self._add("DequantizeLinear", [self.node.inputs[value], *rest], "dequantized", **attrs)

    def _channel_axis(self, op: str, position: int, slot: int) -> int | None:
        """Returns the axis of the output channels of a weight, or None for a plain input or an unknown rank."""
        if position == 0 or op not in ("Conv", "Gemm", "MatMul"):
            return None
        if op == "Conv" or (op == "Gemm" and self.node.attrs.get("transB")):
            return 0
        shape = self.field.shape(self.node.inputs[slot])
        return None if shape is None else len(shape) - 1

    def _float_bias(self, signature: _Signature) -> gs.Tensor | None:
        """Returns the int32 bias as float: its unit is the product of the two input scales."""
        assert signature.bias is not None
        (_, first, _), (_, second, _) = signature.data
        tensors = [self.node.inputs[slot] for slot in (signature.bias, first, second)]
        parts = [self.field.values(tensor) for tensor in tensors]
        bias, x_scale, w_scale = parts
        alpha = np.float32(self.attrs.get("alpha", 1.0))
        if bias is None or x_scale is None or w_scale is None:
            # Scales of channels stand along the last axis of a bias.
            unit = self._add("Mul", tensors[1:], "unit")
            if alpha != 1:
                unit = self._add("Mul", [unit, self.field.constant(f"{self.name}.alpha", alpha)], "unit")
            return self._add("Mul", [self._in_float(tensors[0]), unit], "bias")
        if x_scale.size != 1 or w_scale.size not in (1, bias.size):
            return None
        unit = x_scale.reshape(()) * along(w_scale, -1, 1) * alpha
        return self.field.constant(f"{self.name}.bias", (bias.astype(np.float32) * unit).astype(np.float32))
