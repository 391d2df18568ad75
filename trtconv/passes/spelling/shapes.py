"""Writes what older parsers make of shapes, and of numbers taken from them, as they read it."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.attributes import attributes_of
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Writer


class TakeFromShape(Spelling):
    """Writes a Shape of some axes as the whole shape, of which those are taken.

    The parsers of TensorRT 8.6 and 9 pass over `start` and `end` and return the whole shape; what concatenates such
    shapes then has more axes than TensorRT allows, and the parser of 8.6 ends the process.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 15]>
        g (float[n,3,8] x) => (int64[1] y) { y = Shape <start = 0, end = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 15]>
        g (float[n,3,8] x) => (int64[1] y) <int64[1] first = {0}> { s = Shape (x)  y = Gather (s, first) }
    """

    name = "take-from-shape"
    ops = frozenset({"Shape"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return target.before(10) and not attributes_of(scope.columns.nodes[index]).keys().isdisjoint(("start", "end"))

    def write(self, writer: Writer, target: Target) -> str | None:
        rank = len(writer.shape(writer.input(0)))
        axes = range(rank)[writer.attrs.get("start", 0) : writer.attrs.get("end", rank)]
        if not axes:
            writer("Identity", np.zeros(0, np.int64), to=writer.output())
        elif len(axes) == rank:
            writer("Shape", writer.input(0), to=writer.output())
        else:
            writer("Gather", writer("Shape", writer.input(0)), np.array(axes, np.int64), to=writer.output(), axis=0)
        return None


class ScalarRange(Spelling):
    """Writes the limits of a Range as scalars where they are tensors of one element.

    ONNX wants scalars, and ONNX's own AffineGrid has the other; the parsers of TensorRT 8.6 and 9 read past the end of
    such a tensor, and the process ends. Others take both, but not every ONNX Runtime does, which the proof runs.

    Before:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[n] x) => (int64[m] y) <int64 zero = {0}, int64 one = {1}> { n = Shape (x)  y = Range (zero, n, one) }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[n] x) => (int64[m] y) <int64 zero = {0}, int64 one = {1}, int64[1] first = {0}>
        { n = Shape (x)  s = Squeeze (n, first)  y = Range (zero, s, one) }
    """

    name = "scalar-range"
    ops = frozenset({"Range"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return any(_is_vector(scope, name) for name in scope.columns.inputs[index])

    def write(self, writer: Writer, target: Target) -> str | None:
        vectors = [_is_vector(writer.scope, name) for name in writer.node.input]
        names = zip(writer.node.input, vectors, strict=True)
        writer.again(
            [writer.squeeze(name, range(len(writer.shape(name)))) if vector else name for name, vector in names]
        )
        return "the limits of a Range written as scalars"


def _is_vector(scope: Scope, name: str) -> bool:
    shape = scope.shape(name)
    return shape is not None and len(shape) > 0 and all(size == 1 for size in shape)
