"""Writes uint8 quantisation around 128 as int8 around 0."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto

from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.graph.quantization import UINT8_MIDDLE
from trtconv.passes.base import Pass, PassResult
from trtconv.passes.quantized import Group, each_group, each_pad, has_linear, pad_value


class ShiftUint8(Pass):
    """Writes uint8 quantisation with zero point 128 as int8 with 0: the same numbers, 128 lower.

    All that shares the values shifts with them: constants, the fill value of Pad, and nodes that only move values.
    TensorRT refuses zero points other than 0, and uint8 altogether before 10.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float s = {0.1}, uint8 z = {128}>
        { q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
        <float s = {0.1}, int8 int8 = {0}, int8 int8_1 = {0}>
        {
          q = QuantizeLinear (x, s, int8)
          y = DequantizeLinear (q, s, int8_1)
        }
    """

    name = "shift-uint8-to-int8"
    fixes = ("TC307",)

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return has_linear(model)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        result = PassResult()
        for field, group in each_group(model):
            if group.dtype == "uint8" and group.zero_points == {UINT8_MIDDLE}:
                result += self._shift(field, group)
        return result

    def _shift(self, field: Field, group: Group) -> PassResult:
        if not group.obstacle and any(linear.zero_point is None for linear in group.linears):
            group.obstacle = "some of its nodes have no zero point"
        if group.obstacle:
            return PassResult(skipped=(Skip(self.name, group.name, group.obstacle),))
        _shift_constants(field, group)
        for pad in each_pad(group):
            fill = pad_value(pad)
            value = 0 if fill is None else field.number(fill)
            if value is None or not 0 <= value < 2 * UINT8_MIDDLE:
                reason = f"Pad {pad.name!r} fills with what is not one constant uint8"
                return PassResult(skipped=(Skip(self.name, group.name, reason),))
            shifted = np.array(value - UINT8_MIDDLE, np.int8)
            pad.inputs = [*pad.inputs[:2], field.constant(f"{pad.name}.fill", shifted), *pad.inputs[3:]]
        for linear in group.linears:
            assert linear.zero_point is not None
            zeros = np.zeros(linear.zero_point.shape, np.int8)
            linear.node.inputs[2] = field.constant(f"{linear.node.inputs[2].name}.int8", zeros)
            if linear.node.attrs.get("output_dtype"):
                linear.node.attrs["output_dtype"] = int(TensorProto.INT8)
        for node in (*(linear.node for linear in group.linears), *group.movers):
            field.replace(node, [node])
        what = f"uint8 around {UINT8_MIDDLE} written as int8 around 0, with {len(group.linears)} quantisers"
        return PassResult((Edit(self.name, group.name, what),))


def _shift_constants(field: Field, group: Group) -> None:
    for tensor in group.constants:
        values = field.values(tensor)
        assert values is not None
        shifted = field.constant(f"{tensor.name}.int8", (values.astype(np.int64) - UINT8_MIDDLE).astype(np.int8))
        substitute(group, tensor, shifted)


def substitute(group: Group, old: gs.Tensor, new: gs.Tensor) -> None:
    """Puts one constant in place of another in every node of a group."""
    for node in (*(linear.node for linear in group.linears), *group.movers):
        for slot, tensor in enumerate(node.inputs):
            if tensor is old:
                node.inputs[slot] = new
