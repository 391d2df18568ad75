"""Gives tensors of one axis a second one, where TensorRT wants two."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Writer

_PICKS = ("ArgMax", "ArgMin")
_SHARES = ("Hardmax", "Softmax")


class AddSecondAxis(Spelling):
    """Gives a vector that is multiplied with several matrices another axis, and so what operators take of one axis.

    TensorRT's parser takes the wrong axis off such a product again: it is refused, or fails for other sizes than one.
    Softmax, Hardmax, ArgMax and ArgMin want two axes.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2] v, float[3,2,4] m) => (float[3,4] y) { y = MatMul (v, m) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2] v, float[3,2,4] m) => (float[3,4] y) <int64[1] first = {0}, int64[1] row = {1}>
        { r = Unsqueeze (v, first)  p = MatMul (r, m)  y = Squeeze (p, row) }
    """

    name = "add-second-axis"
    ops = frozenset({"MatMul", *_PICKS, *_SHARES})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        shapes = [scope.shape(name) for name in columns.inputs[index][:2]]
        if not shapes or shapes[0] is None or len(shapes[0]) != 1:
            return False
        return columns.ops[index] != "MatMul" or (shapes[1] is not None and len(shapes[1]) > 2)

    def write(self, writer: Writer, target: Target) -> str | None:
        row = writer.unsqueeze(writer.input(0), [0])
        inner = writer.model.fresh_name(f"{writer.output()}_rows")
        if writer.node.op_type != "MatMul":
            writer.again([row], [inner], axis=1)
            writer.squeeze(inner, [0], to=writer.output())
        else:
            writer.again([row, writer.input(1)], [inner])
            writer.squeeze(inner, [len(writer.shape(writer.input(1))) - 2], to=writer.output())
        return None
