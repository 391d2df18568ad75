"""TC614."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.graph.types import MOVES
from trtconv.rules.operator import OperatorRule


class ByteInputMoved(OperatorRule):
    """An image of bytes that is transposed or cut before it is cast, which TensorRT refuses.

    What it checks:
        Transpose, Reshape, Slice and the like on a uint8 input of the model, in front of a Cast.
    Why TensorRT cares:
        TensorRT takes uint8 as an input for one thing: to cast it.
    Versions:
        TensorRT-RTX 1.7; 8.6 has uint8 nowhere else either.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (uint8[1,4,4,3] x) => (float[1,3,4,4] y)
        { t = Transpose <perm = [0, 3, 1, 2]> (x)
          y = Cast <to = 1> (t) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (uint8[1,4,4,3] x) => (float[1,3,4,4] y)
        { c = Cast <to = 1> (x)
          y = Transpose <perm = [0, 3, 1, 2]> (c) }
    Fix:
        trtconv build and rewrite move the Cast to the front.
    Source:
        Parsed by TensorRT-RTX 1.7.1.
    """

    code = "TC614"
    name = "byte-input-moved"
    fix = "Let trtconv build or rewrite move the Cast to the front."
    by_hand = "Cast the input first, then move it."
    ops = MOVES

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        if scope.dtype(node.input[0]) != "uint8":
            return None
        users = scope.consumers.get(node.output[0], ())
        casts = len(users) == 1 and users[0].op_type in ("Cast", *MOVES)
        return f"{node.op_type} of uint8, which TensorRT can only cast" if casts else None
