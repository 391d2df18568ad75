"""Attention over one query, of which TensorRT 8.6 makes something else where it is masked."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_FAR = 8
_BETWEEN = frozenset({"Add", "Cast", "Div", "Identity", "Mul", "Where"})
"""What an attention may have between its first product and its softmax."""


class DoubleOneRow(Spelling):
    """Multiplies a single row twice, and takes the first result, in both products of an attention.

    Attention over caches adds a mask, and masks the shares of rows without keys by a Where behind the Softmax. With one
    query the builder of TensorRT 8.6 makes something of products, Softmax and Where that is off by half, though each of
    them is right alone, as is the whole with two rows in each product (bench/results/gpu-attention-parts-8.6.json).
    Without the Where it was right where it was run; what is masked is doubled there too.

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
        node = scope.columns.nodes[index]
        return _is_masked(scope, node) or any(
            _is_masked(scope, product)
            for softmax in _behind(scope, node, "Softmax", _BETWEEN, _FAR)
            for product in _behind(scope, softmax, "MatMul", ("Cast", "Where"), 3)
        )

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


def _is_masked(scope: Scope, product: onnx.NodeProto) -> bool:
    """Whether what a product is made of is a Where behind a softmax, or the softmax of a sum."""
    maker = _maker(scope, product.input[0])
    if maker is not None and maker.op_type == "Where":
        makers = (_maker(scope, name) for name in maker.input)
        return any(node is not None and node.op_type == "Softmax" for node in makers)
    added = _maker(scope, maker.input[0]) if maker is not None and maker.op_type == "Softmax" else None
    return added is not None and added.op_type == "Add"


def _maker(scope: Scope, name: str) -> onnx.NodeProto | None:
    """Returns what makes a tensor, casts aside."""
    node = scope.producer(name)
    return scope.producer(node.input[0]) if node is not None and node.op_type == "Cast" else node


def _behind(
    scope: Scope, node: onnx.NodeProto, op: str, between: Collection[str], far: int
) -> Iterator[onnx.NodeProto]:
    """Yields the nodes of an operator that are not far behind a node, with none but some operators between."""
    names = [node.output[0]]
    for _ in range(far):
        behind = [user for name in names for user in scope.consumers.get(name, ())]
        yield from (user for user in behind if user.op_type == op)
        names = [user.output[0] for user in behind if user.op_type in between]
