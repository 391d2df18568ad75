"""Writes operators that compute in integers as Q/DQ around the float operator."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.model import Field
from trtconv.passes.base import NodePass, Operation, Refusal
from trtconv.quant import along

_DROPPED = frozenset({"channels_last", "opset"})
"""Attributes of ONNX Runtime's operators that the standard operator does not have."""


@dataclasses.dataclass(frozen=True)
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
_MS = "com.microsoft"


class ExpandIntegerOperators(NodePass):
    """Writes QLinearConv, QLinearMatMul, ConvInteger and their like as float operators between Q/DQ.

    TensorRT has no operators on integers; it makes int8 layers of Q/DQ itself. A result may differ by one quantisation
    step where ONNX Runtime's integer multiplier rounds a tie the other way.
    """

    name: ClassVar[str] = "expand-integer-operators"
    fixes: ClassVar[tuple[str, ...]] = ("TC310",)
    safety: ClassVar[str] = "within tolerance"
    ops: ClassVar[frozenset[str]] = frozenset({*_SIGNATURES, *_ACCUMULATORS, "QLinearConcat"})

    def visit(self, operation: Operation) -> str | Refusal | None:
        field, node = operation.field, operation.node
        assert isinstance(node, gs.Node)
        if node.attrs.get("channels_last"):
            return Refusal("its channels come last")
        if field.model.opset < 13 and node.op != "QLinearConcat":
            return Refusal(f"opset {field.model.opset} has no Q/DQ per channel (13 has)")
        work = _Expansion(field, node)
        if node.op in _ACCUMULATORS:
            reason = work.accumulate(_ACCUMULATORS[node.op])
        elif node.op == "QLinearConcat":
            reason = work.concat()
        else:
            reason = work.expand(_SIGNATURES[node.op])
        if reason:
            return Refusal(reason)
        return f"{node.op} written as {'/'.join(n.op for n in work.nodes)}"


class _Expansion:
    """The nodes that take the place of one integer operator."""

    def __init__(self, field: Field, node: gs.Node) -> None:
        self.field = field
        self.node = node
        self.name = node.name or node.op
        self.nodes: list[gs.Node] = []
        self.attrs = {k: v for k, v in node.attrs.items() if k not in _DROPPED}

    def expand(self, signature: _Signature) -> str | None:
        """Puts DequantizeLinear before and QuantizeLinear behind the float operator; returns why it cannot."""
        bias = None
        if signature.bias is not None and self._slot(signature.bias) is not None:
            bias = self._float_bias(signature)
            if bias is None:
                return "its bias or scales are computed at run time"
        inputs = [self.node.inputs[slot] for slot in signature.plain]
        for position, slots in enumerate(signature.data):
            inputs.append(self._dequantized(*slots, axis=self._weight_axis(signature.op, position)))
        if bias is not None:
            inputs.append(bias)
        self._finish(signature.op, inputs, signature.output)
        return None

    def concat(self) -> str | None:
        """QLinearConcat: (y_scale, y_zero_point, then x, scale, zero point of each input)."""
        data = range(2, len(self.node.inputs), 3)
        inputs = [self._dequantized(at, at + 1, at + 2, axis=None) for at in data]
        self._finish("Concat", inputs, (0, 1))
        return None

    def accumulate(self, op: str) -> str | None:
        """ConvInteger and MatMulInteger: exact in float32 while sums stay below 2**24, so the kernel must be known."""
        weight = self.field.values(self.node.inputs[1])
        if weight is None:
            return "its weight is computed at run time"
        terms = weight.size // weight.shape[0] if op == "Conv" else weight.shape[-2]
        if terms * 255 * 255 >= 2**24:
            return f"sums of {terms} products may not be exact in float32"
        one = self.field.constant(f"{self.name}.one", np.float32(1).reshape(()))
        inputs = [self._dequantized_by(slot, one, self._slot(slot + 2)) for slot in (0, 1)]
        output = self.node.outputs[0]
        self.node.outputs.clear()
        real = self._add(op, inputs, "sums", **self.attrs)
        self.nodes.append(self.field.node("Cast", f"{self.name}/Cast", [real], output, to=6))
        self.field.replace(self.node, self.nodes)
        return None

    def _finish(self, op: str, inputs: list[gs.Tensor], output_slots: tuple[int, int]) -> None:
        output = self.node.outputs[0]
        scale = self._slot(output_slots[0])
        self.node.outputs.clear()
        if scale is None:
            self.nodes.append(self.field.node(op, f"{self.name}/{op}", inputs, output, **self.attrs))
        else:
            real = self._add(op, inputs, "real", **self.attrs)
            point = self._slot(output_slots[1])
            rest = [scale] if point is None else [scale, point]
            self.nodes.append(self.field.node("QuantizeLinear", f"{self.name}/Quantize", [real, *rest], output))
        self.field.replace(self.node, self.nodes)

    def _add(self, op: str, inputs: list[gs.Tensor], label: str, **attrs: Any) -> gs.Tensor:
        self.nodes.append(self.field.node(op, f"{self.name}/{op}", inputs, f"{self.name}.{label}", **attrs))
        return self.nodes[-1].outputs[0]

    def _slot(self, slot: int) -> gs.Tensor | None:
        inputs = self.node.inputs
        return inputs[slot] if slot < len(inputs) and not inputs[slot].is_empty() else None

    def _dequantized(self, value: int, scale: int, point: int, axis: int | None) -> gs.Tensor:
        tensor = self._slot(scale)
        assert tensor is not None
        return self._dequantized_by(value, tensor, self._slot(point), axis)

    def _dequantized_by(
        self, value: int, scale: gs.Tensor, point: gs.Tensor | None, axis: int | None = None
    ) -> gs.Tensor:
        scales = self.field.values(scale)
        attrs = {"axis": axis} if axis is not None and scales is not None and scales.size > 1 else {}
        rest = [scale] if point is None else [scale, point]
        return self._add("DequantizeLinear", [self.node.inputs[value], *rest], "dequantized", **attrs)

    def _weight_axis(self, op: str, position: int) -> int | None:
        """Returns the axis of the output channels of a weight, or None for a plain input."""
        if position == 0:
            return None
        if op == "Conv" or (op == "Gemm" and self.node.attrs.get("transB")):
            return 0
        return 1 if op in ("Gemm", "MatMul") else None

    def _float_bias(self, signature: _Signature) -> gs.Tensor | None:
        """Returns the int32 bias as float: its unit is the product of the two input scales."""
        assert signature.bias is not None
        (_, first, _), (_, second, _) = signature.data
        parts = [self.field.values(self.node.inputs[slot]) for slot in (signature.bias, first, second)]
        bias, x_scale, w_scale = parts
        if bias is None or x_scale is None or w_scale is None:
            return None
        unit = x_scale.reshape(()) * along(w_scale, -1, 1) * np.float32(self.attrs.get("alpha", 1.0))
        return self.field.constant(f"{self.name}.bias", (bias.astype(np.float32) * unit).astype(np.float32))
