"""Products of one row behind a softmax, which TensorRT 8.6 computes wrongly where a Where lies between the two."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer


class DoubleOneRow(Spelling):
    """Multiplies a single row of shares twice, and takes the first result: two rows are computed right.

    Attention over caches masks the shares of rows without keys by a Where behind the Softmax. With one query the
    builder of TensorRT 8.6 makes something of Softmax, Where and MatMul that is off by half, though each of them is
    right alone, as is the whole with two queries (bench/results/gpu-attention-parts-8.6.json).

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,1,8] x, bool[2,1,1] none, float[2,8,4] v) => (float[2,1,4] y) <float zero = {0.0}>
        { s = Softmax (x)  w = Where (none, zero, s)  y = MatMul (w, v) }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,1,8] x, bool[2,1,1] none, float[2,8,4] v) => (float[2,1,4] y)
        <float zero = {0.0}, int64[1] a = {0}, int64[1] b = {1}, int64[1] axis = {-2}>
        {
          s = Softmax (x)  w = Where (none, zero, s)  t = Concat <axis = -2> (w, w)  m = MatMul (t, v)
          y = Slice (m, a, b, axis)
        }
    """

    name = "double-one-row"
    ops = frozenset({"MatMul"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        if not target.before(9):
            return False
        where = scope.producer(scope.columns.inputs[index][0])
        return where is not None and where.op_type == "Where" and any(_is_softmax(scope, name) for name in where.input)

    def write(self, writer: Writer, target: Target) -> str | None:
        row = writer.input(0)
        shape = writer.shape(row)
        if len(shape) < 2 or shape[-2] not in (1, None):
            raise Unwritable("")
        if shape[-2] is None:
            raise Unwritable("whether it has one row is known only at run time")
        both = writer("MatMul", writer("Concat", row, row, axis=-2), writer.input(1))
        writer.slice(both, [0], [1], [-2], to=writer.output())
        return None


def _is_softmax(scope: Scope, name: str) -> bool:
    node = scope.producer(name)
    if node is not None and node.op_type == "Cast":
        node = scope.producer(node.input[0])
    return node is not None and node.op_type == "Softmax"
