"""Writes the places of all elements of a tensor that has no zero."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.masked import MOST_STEPS, OF_ONE_VALUE
from trtconv.passes.spelling.sizes import joined, positions, sizes_of
from trtconv.passes.spelling.writer import Unwritable, Writer


class ListPlaces(Spelling):
    """Writes NonZero of a tensor that has no zero, of sizes known only at run time, as ranges along its axes.

    TensorRT-RTX has no NonZero, and how many places there are is known only at run time to the others. torch's older
    exporter counts so along an axis of dynamic size that a part is assigned to, as Longformer does.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n] x) => (int64[1,n] y)
        { n = Shape (x)  ones = ConstantOfShape <value = int64[1] {1}> (n)  y = NonZero (ones) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n] x) => (int64[1,n] y) <int64 zero = {0}, int64 one = {1}, int64[1] row = {0}>
        {
          n = Shape (x)  ones = ConstantOfShape <value = int64[1] {1}> (n)
          s = Shape (ones)  c = Gather <axis = 0> (s, zero)  r = Range (zero, c, one)  y = Unsqueeze (r, row)
        }
    """

    name = "list-places"
    ops = frozenset({"NonZero"})
    fixes = ("TC204",)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return _has_no_zero(scope, scope.columns.inputs[index][0])

    def write(self, writer: Writer, target: Target) -> str | None:
        name = writer.input(0)
        shape = writer.shape(name)
        if not shape:
            raise Unwritable("of a scalar ONNX's definition and ONNX Runtime find positions of different shapes")
        sizes = sizes_of(writer, name, shape)
        counts = [writer.constant(p) if isinstance(p := positions(writer, size), np.ndarray) else p for size in sizes]
        if len(sizes) == 1:
            writer.unsqueeze(str(counts[0]), [0], to=writer.output())
            return f"every place of {name!r} counted along its axis"
        whole, rows = joined(writer, sizes), list[str]()
        for axis, count in enumerate(counts):
            along = writer.unsqueeze(str(count), [other for other in range(len(sizes)) if other != axis])
            rows.append(writer.reshape(writer("Expand", along, whole), [1, -1]))
        writer("Concat", *rows, axis=0, to=writer.output())
        return f"every place of {name!r} counted along its {len(sizes)} axes"


def _has_no_zero(scope: Scope, name: str) -> bool:
    """Whether a tensor is known to have no zero, whatever its sizes."""
    for _ in range(MOST_STEPS):
        values = scope.values(name)
        if values is not None:
            return bool(np.all(values != 0))
        node = scope.producer(name)
        if node is None or node.domain not in ONNX_DOMAINS:
            return False
        if node.op_type == "ConstantOfShape":
            filler = attribute(node, "value")
            return filler is not None and bool(np.all(numpy_helper.to_array(filler) != 0))
        # A number that is not zero is true; as another type it may be zero.
        if node.op_type not in OF_ONE_VALUE and not (
            node.op_type == "Cast" and attribute(node, "to") == TensorProto.BOOL
        ):
            return False
        name = node.input[0]
    return False
