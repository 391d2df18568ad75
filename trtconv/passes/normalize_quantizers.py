"""Writes down what QuantizeLinear and DequantizeLinear nodes leave unsaid."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.graph.types import MICROSOFT
from trtconv.passes.base import NodePass, Refusal

_INTEGERS = ("int8", "uint8", "int16", "uint16")


class NormalizeQuantizers(NodePass):
    """Writes the axis, the zero point, constant scales and the domain of QuantizeLinear and DequantizeLinear.

    The parser's default for a missing axis has changed between versions (0, later 1; ONNX says 1); 8.6 wants a zero
    point; a QuantizeLinear without one means uint8 in ONNX and is read as int8; scales must be initializers.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float a = {0.2}, float b = {0.5}, int8 z = {0}>
        { s = Mul (a, b)
          q = QuantizeLinear (x, s, z)
          y = DequantizeLinear (q, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
        <int8 z = {0}, float folded = {0.1}, float folded_1 = {0.1}>
        {
          q = QuantizeLinear (x, folded, z)
          y = DequantizeLinear (q, folded_1, z)
        }
    """

    name = "normalize-quantizers"
    fixes = ("TC304", "TC305", "TC306", "TC312")
    ops = frozenset({"QuantizeLinear", "DequantizeLinear"})

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        if node.attrs.get("block_size"):
            return None
        notes = _fold_parameters(field, node)
        scale = field.values(node.inputs[1])
        if scale is None:
            return Refusal(f"its scale {node.inputs[1].name!r} is computed at run time")
        axis = _written_axis(field, node, scale.size)
        if axis is not None:
            node.attrs["axis"] = axis
            notes.append(f"axis {axis} written")
        notes += _complete_zero_point(field, node, scale.shape)
        # The zero point tells whether ONNX has the operator.
        notes += _standard_domain(field, node)
        if not notes:
            return None
        field.replace(node, [node])
        return ", ".join(notes)


def _fold_parameters(field: Field, node: gs.Node) -> list[str]:
    """Makes initializers of a scale and zero point that are computed from constants."""
    notes = []
    for slot, what in ((1, "scale"), (2, "zero point")):
        if slot < len(node.inputs) and node.inputs[slot].inputs:
            values = field.fold(node.inputs[slot])
            if values is not None:
                node.inputs[slot] = field.constant(f"{node.inputs[slot].name}.folded", values)
                notes.append(f"{what} folded into an initializer")
    return notes


def _standard_domain(field: Field, node: gs.Node) -> list[str]:
    """Writes ONNX Runtime's own 8-bit Q/DQ as ONNX's; its 16-bit ones have no ONNX form before opset 21."""
    if (node.domain or "") != MICROSOFT or field.model.opset < 13:
        return []
    point = field.values(node.inputs[2]) if len(node.inputs) > 2 and not node.inputs[2].is_empty() else None
    if point is None or str(point.dtype) not in ("int8", "uint8"):
        return []
    node.domain = None
    return ["written in ONNX's domain"]


def _written_axis(field: Field, node: gs.Node, channels: int) -> int | None:
    """Returns the axis to write, or None where it is there or means nothing."""
    if channels == 1 or field.model.opset < 13:
        return None
    axis = node.attrs.get("axis")
    if axis is None:
        return 1
    if axis >= 0:
        return None
    shape = field.shape(node.inputs[0])
    return None if shape is None or axis < -len(shape) else int(axis) + len(shape)


def _complete_zero_point(field: Field, node: gs.Node, shape: tuple[int, ...]) -> list[str]:
    if len(node.inputs) > 2 and not node.inputs[2].is_empty():
        point = field.values(node.inputs[2])
        if point is None or point.shape == shape or (point.size != 1 and point.size != np.prod(shape)):
            return []
        values = np.broadcast_to(point.reshape(-1), (int(np.prod(shape)),)).reshape(shape)
        node.inputs[2] = field.constant(f"{node.inputs[2].name}.shaped", values)
        return [f"zero point shaped {list(point.shape)} like its scale {list(shape)}"]
    dtype = _integer_type(field, node)
    if dtype not in _INTEGERS:
        return []
    node.inputs = [*node.inputs[:2], field.constant(f"{label(node)}.zero_point", np.zeros(shape, dtype))]
    return [f"zero point 0 ({dtype}) written"]


def _integer_type(field: Field, node: gs.Node) -> str | None:
    """Returns the type on the integer side of a node without a zero point."""
    if node.op == "DequantizeLinear":
        values = field.values(node.inputs[0])
        return str(values.dtype) if values is not None else field.dtype(node.inputs[0])
    code = node.attrs.get("output_dtype")
    if code:
        return field.dtype(node.outputs[0])
    return "uint8"
