"""Writes indices that count from the end of an axis of dynamic size by that size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_BROADCAST_OPSET = 7
"""From which arithmetic broadcasts both of its inputs."""


class CountFromStart(Spelling):
    """Writes constant negative indices into an axis of dynamic size as that size less so much.

    To take the last step of a sequence whose length is dynamic is the usual case. TensorRT documents what a negative
    index means where the size is known, and says that it is undefined where it is not.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[N,T,2] x) => (float[N,2] y) <int64 last = {-1}> { y = Gather <axis = 1> (x, last) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[N,T,2] x) => (float[N,2] y) <int64 axis = {1}, int64 last = {-1}>
        { s = Shape (x)  n = Gather <axis = 0> (s, axis)  i = Add (last, n)  y = Gather <axis = 1> (x, i) }
    """

    name = "count-from-start"
    ops = frozenset({"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        data, indices, *_ = scope.columns.inputs[index]
        constant = scope.constant(indices)
        if constant is None or ((maker := scope.producer(data)) is not None and maker.op_type == "Shape"):
            return False
        values = scope.whole.array(constant)
        return bool(values.size) and values.min() < 0

    def write(self, writer: Writer, target: Target) -> str | None:
        data, values = writer.input(0), writer.values(1, "indices").astype(np.int64)
        is_nd = writer.node.op_type.endswith("ND")
        # A number of such an index is of one axis each; of others all are of the same.
        columns = values if is_nd else values[..., None]
        axes = _axes(writer, columns.shape[-1])
        is_negative = values < 0
        turned = [axis for slot, axis in enumerate(axes) if (columns[..., slot] < 0).any()]
        if all(writer.shape(data)[axis] is not None for axis in turned):
            raise Unwritable
        if writer.opset < _BROADCAST_OPSET:
            raise Unwritable(f"opset {writer.opset} has no Add that broadcasts")
        size = writer("Gather", writer("Shape", data), np.array(axes if is_nd else axes[0], np.int64), axis=0)
        if not is_negative.all():
            size = writer("Mul", is_negative.astype(np.int64), size)
        writer.again([data, writer("Add", values, size), *writer.node.input[2:]])
        return f"its indices count from the start of axis {', '.join(map(str, turned))}, by the size at run time"


def _axes(writer: Writer, count: int) -> Sequence[int]:
    """Returns the axes of the data that the numbers of an index are of."""
    if writer.node.op_type.endswith("ND"):
        first = writer.attrs.get("batch_dims", 0)
        return range(first, first + count)
    return [writer.attrs.get("axis", 0) % len(writer.shape(writer.input(0)))]
