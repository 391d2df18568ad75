"""Quantised constants that stand where TensorRT takes none."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.passes.base import Pass, PassResult
from trtconv.passes.quantized import Group, each_group, each_pad, has_linear, pad_value


class DequantizeConstants(Pass):
    """Puts Q/DQ around int8 constants that are padded with or moved: the same numbers.

    TensorRT's builder takes them in front of a DequantizeLinear only ("Quantized constant is only allowed before DQ").

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,4] x) => (float[1,6] y)
        <float s = {0.1}, int8 z = {0}, int64[4] pads = {0, 1, 0, 1}, int8 fill = {5}>
        { q = QuantizeLinear (x, s, z)  p = Pad (q, pads, fill)  y = DequantizeLinear (p, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 4] x) => (float[1, 6] y)
        <float s = {0.1}, int8 z = {0}, int64[4] pads = {0, 1, 0, 1}, float scale = {0.1}, int8 zero_point = {0},
            float fill = {0.5}>
        {
          q = QuantizeLinear (x, s, z)
          real = DequantizeLinear (q, scale, zero_point)
          padded = Pad (real, pads, fill)
          p = QuantizeLinear (padded, scale, zero_point)
          y = DequantizeLinear (p, s, z)
        }
    """

    name = "dequantize-constants"

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return has_linear(model)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        result = PassResult()
        for field, group in each_group(model):
            filled = [pad for pad in each_pad(group) if pad_value(pad) is not None]
            if not filled and not group.moved_constants:
                continue
            if group.obstacle or group.dtype != "int8" or group.zero_points != {0} or _has_channels(group):
                reason = group.obstacle or "it is not int8 around 0 with one scale"
                result += PassResult(skipped=(Skip(self.name, group.name, reason),))
                continue
            for pad in filled:
                result += self._pad(field, group, pad)
            for mover in group.movers:
                result += self._move(field, group, mover)
        return result

    def _pad(self, field: Field, group: Group, pad: gs.Node) -> PassResult:
        fill = pad_value(pad)
        value = None if fill is None else field.number(fill)
        if value is None:
            return PassResult(skipped=(Skip(self.name, pad.name, "it fills with what is not one constant integer"),))
        if not value:
            pad.inputs[2] = gs.Variable.empty()
            field.replace(pad, [pad])
            return PassResult((Edit(self.name, pad.name, "fill value 0 left out"),))
        unit = _unit(field, group, pad.name)
        before = field.node("DequantizeLinear", f"{pad.name}/Dequantize", [pad.inputs[0], *unit], f"{pad.name}.real")
        kind = group.linears[0].scale.dtype
        real = field.constant(f"{pad.name}.fill", np.array(value * _scale(group), kind))
        output = pad.outputs[0]
        pad.outputs.clear()
        pad.outputs.append(field.variable(f"{pad.name}.padded"))
        pad.inputs = [before.outputs[0], pad.inputs[1], real, *pad.inputs[3:]]
        behind = field.node("QuantizeLinear", f"{pad.name}/Quantize", [pad.outputs[0], *unit], output)
        field.replace(pad, [before, pad, behind])
        return PassResult((Edit(self.name, pad.name, f"fill value {value} padded on in float"),))

    def _move(self, field: Field, group: Group, mover: gs.Node) -> PassResult:
        moved = [(slot, c) for slot, t in enumerate(mover.inputs) for c in group.moved_constants if t is c]
        if not moved:
            return PassResult()
        nodes = []
        for slot, constant in moved:
            name = constant.name
            unit = _unit(field, group, name)
            nodes.append(field.node("DequantizeLinear", f"{name}/Dequantize", [constant, *unit], f"{name}.real"))
            nodes.append(
                field.node("QuantizeLinear", f"{name}/Quantize", [nodes[-1].outputs[0], *unit], f"{name}.int8")
            )
            mover.inputs[slot] = nodes[-1].outputs[0]
        field.replace(mover, [*nodes, mover])
        return PassResult((Edit(self.name, mover.name, f"{len(moved)} constants dequantised and quantised again"),))


def _has_channels(group: Group) -> bool:
    return any(linear.scale.size > 1 for linear in group.linears)


def _scale(group: Group) -> Any:
    """Returns a scale for values that pass through Q/DQ unchanged: whichever would do, the group's own fuses."""
    return np.float32(group.linears[0].scale.reshape(-1)[0])


def _unit(field: Field, group: Group, name: str) -> list[gs.Tensor]:
    scale = np.array(_scale(group), group.linears[0].scale.dtype)
    return [field.constant(f"{name}.scale", scale), field.constant(f"{name}.zero_point", np.array(0, np.int8))]
