"""Turns recurrent layers with the batch first into ones with the time first."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.passes.base import NodePass

_SWAPPED = [1, 0, 2]
_STATES = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,)}
"""Inputs with initial values, which have the batch in front of the direction too."""


class PutTimeFirst(NodePass):
    """Puts Transposes around GRU, LSTM and RNN nodes of layout 1, which TensorRT reads as layout 0.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3,4] x, float[1,5,4] w, float[1,5,5] r) => (float[2,3,1,5] y)
        { y = RNN <hidden_size = 5, layout = 1> (x, w, r) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3, 4] x, float[1, 5, 4] w, float[1, 5, 5] r) => (float[2, 3, 1, 5] y) {
          swapped = Transpose <perm = [1, 0, 2]> (x)
          swapped2 = RNN <hidden_size = 5> (swapped, w, r)
          y = Transpose <perm = [2, 0, 1, 3]> (swapped2)
        }
    """

    name = "put-time-first"
    fixes = ("TC611",)
    ops = frozenset(_STATES)
    looks_around = False

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | None:
        if node.attrs.get("layout") != 1:
            return None
        del node.attrs["layout"]
        before = [
            _transposed_input(field, node, slot)
            for slot in (0, *_STATES[node.op])
            if slot < len(node.inputs) and not node.inputs[slot].is_empty()
        ]
        after = [
            _transposed_output(field, node, slot, [2, 0, 1, 3] if slot == 0 else _SWAPPED)
            for slot, output in enumerate(node.outputs)
            if not output.is_empty()
        ]
        field.replace(node, [*before, node, *after])
        return "layout 1 written as Transposes around layout 0"


def _transposed_input(field: Field, node: gs.Node, slot: int) -> gs.Node:
    name = f"{label(node)}.input{slot}"
    transpose = field.node("Transpose", f"{name}/Transpose", [node.inputs[slot]], f"{name}.swapped", perm=_SWAPPED)
    node.inputs[slot] = transpose.outputs[0]
    return transpose


def _transposed_output(field: Field, node: gs.Node, slot: int, order: list[int]) -> gs.Node:
    name, output = f"{label(node)}.output{slot}", node.outputs[slot]
    node.outputs[slot] = field.variable(f"{name}.swapped")
    return field.node("Transpose", f"{name}/Transpose", [node.outputs[slot]], output, perm=order)
