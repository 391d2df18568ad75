"""Casts images of bytes before they are moved."""

from __future__ import annotations

import itertools

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.graph.scope import Scope
from trtconv.graph.types import MOVES
from trtconv.passes.base import NodePass


class CastBytesFirst(NodePass):
    """Moves a Cast in front of the Transposes, Reshapes and Slices of a uint8 tensor, which TensorRT can only cast.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (uint8[1,4,4,3] x) => (float[1,3,4,4] y)
        { t = Transpose <perm = [0, 3, 1, 2]> (x)
          y = Cast <to = 1> (t) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (uint8[1, 4, 4, 3] x) => (float[1, 3, 4, 4] y) {
          cast = Cast <to = 1> (x)
          y = Transpose <perm = [0, 3, 1, 2]> (cast)
        }
    """

    name = "cast-bytes-first"
    fixes = ("TC614",)
    ops = frozenset({"Cast", *MOVES})
    looks_around = False

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        inputs = scope.columns.inputs[index]
        return bool(inputs) and scope.dtype(inputs[0]) == "uint8"

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | None:
        moves = _moves_before(field, node) if node.op == "Cast" else []
        if not moves:
            return None
        name, result = label(node), node.outputs[0]
        node.outputs = [field.variable(f"{name}.cast")]
        node.inputs[0], moves[0].inputs[0] = moves[0].inputs[0], node.outputs[0]
        for move, following in itertools.pairwise(moves):
            # Under names of their own: what the model says of the old ones is that they are bytes.
            move.outputs = [field.variable(f"{name}.moved")]
            following.inputs[0] = move.outputs[0]
        moves[-1].outputs = [result]
        field.replace(moves[0], [node, moves[0]])
        for move in moves[1:]:
            field.replace(move, [move])
        field.replace(node, [])
        return f"moved in front of {', '.join(move.op for move in moves)}"


def _moves_before(field: Field, cast: gs.Node) -> list[gs.Node]:
    """Returns the nodes, first to last, that only move what the Cast takes, and what nothing else takes."""
    moves: list[gs.Node] = []
    tensor = cast.inputs[0]
    while tensor.inputs and tensor.inputs[0].op in MOVES and len(tensor.outputs) == 1 and not field.escapes(tensor):
        moves.insert(0, tensor.inputs[0])
        tensor = tensor.inputs[0].inputs[0]
    return moves
