"""Infinities that the builder of TensorRT 8.6 takes for large numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.graph.settled import is_settled
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_FLOATS = ("float32", "float16")
_CARRIERS = frozenset(
    (
        *("Add", "Cast", "CastLike", "Concat", "Div", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("Identity", "Max", "Min", "Mul", "Neg", "Pad", "ReduceMax", "ReduceMin", "Reshape", "ScatterElements"),
        *("ScatterND", "Slice", "Split", "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"),
    )
)
"""Operators that hand on an infinity."""
_MOST_NODES = 64
"""That are looked at for an infinity."""
_MOST_ELEMENTS = 1 << 22
"""Of a constant that takes the place of what is computed."""


class GatherInfinities(Spelling):
    """Gives a Where or Equal that takes nothing but infinity a constant that the builder keeps.

    The builder of TensorRT 8.6 makes 1e38 of an infinite constant of one element that a Where takes, or of one that is
    filled or expanded, and an Equal finds no infinity equal to it, nor to what is computed of constants alone (executed
    on 8.6.0). An attention that compares for rows that are masked whole was NaN there. Of a constant of more elements
    it keeps them, and of one of two elements that one is gathered from.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (bool[2,3] m, float[2,3] x) => (float[2,3] y) <float c = {-inf}> { y = Where (m, c, x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (bool[2,3] m, float[2,3] x) => (float[2,3] y) <float[2] two = {-inf, 0}, int64 first = {0}>
        { c = Gather <axis = 0> (two, first)  y = Where (m, c, x) }
    """

    name = "gather-infinities"
    ops = frozenset({"Equal", "Where"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return target.before(9) and any(_may_be_misread(scope, name) for name in scope.columns.inputs[index])

    def write(self, writer: Writer, target: Target) -> str | None:
        inputs = [self._constant(writer, name) for name in writer.node.input]
        if inputs == list(writer.node.input):
            raise Unwritable
        writer.again(inputs)
        return f"an infinity that {writer.node.op_type} takes written so that the builder keeps it"

    @staticmethod
    def _constant(writer: Writer, name: str) -> str:
        values = writer.resolve(name) if _may_be_misread(writer.scope, name) else None
        if values is None or not values.size or not np.isinf(values).all() or values.size > _MOST_ELEMENTS:
            return name
        if values.size > 1:
            return writer.constant(values)
        two = np.concatenate([values.reshape(1), np.zeros(1, values.dtype)])
        return writer("Gather", two, np.zeros(values.shape, np.int64), axis=0)


class ReduceMaxByMin(Spelling):
    """Writes a ReduceMax that an infinity may reach as ReduceMin of what has the other sign.

    TensorRT 8.6 takes the lowest number of float32 for the largest of nothing but minus infinity, where ReduceMin is
    right (executed on 8.6.0). Where nothing that goes into it is settled before and infinite, nothing is written.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,1] y) <float[3] c = {0, -inf, -inf}>
        { a = Add (x, c)  y = ReduceMax <axes = [1]> (a) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,1] y) <float[3] c = {0, -inf, -inf}>
        { a = Add (x, c)  n = Neg (a)  m = ReduceMin <axes = [1]> (n)  y = Neg (m) }
    """

    name = "reduce-max-by-min"
    ops = frozenset({"ReduceMax"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return target.before(9) and scope.dtype(scope.columns.inputs[index][0]) in _FLOATS

    def write(self, writer: Writer, target: Target) -> str | None:
        if writer.shape(writer.input(0)) == () or not _may_be_infinite(writer):
            raise Unwritable
        least = writer("ReduceMin", writer("Neg", writer.input(0)), *writer.node.input[1:], **writer.attrs)
        writer("Neg", least, to=writer.output())
        return None


def _may_be_misread(scope: Scope, name: str) -> bool:
    """Whether a tensor is a constant of one element that is infinite, or computed of constants alone."""
    tensor = scope.constant(name)
    if tensor is None:
        return scope.dtype(name) in _FLOATS and is_settled(scope, name) and not _is_gathered(scope, name)
    # Values of weights may lie in another file.
    values = scope.values(name) if math.prod(tensor.dims) == 1 else None
    return values is not None and str(values.dtype) in _FLOATS and bool(np.isinf(values).all())


def _is_gathered(scope: Scope, name: str) -> bool:
    """Whether a tensor is gathered from a constant of more than one element, as the builder keeps it."""
    maker = scope.producer(name)
    source = scope.constant(maker.input[0]) if maker is not None and maker.op_type == "Gather" else None
    return source is not None and math.prod(source.dims) > 1


def _may_be_infinite(writer: Writer) -> bool:
    """Whether an infinity that is settled before may be among what a node reduces."""
    scope, names, indices = writer.scope, [writer.input(0)], set[int]()
    while names and len(indices) < _MOST_NODES:
        name = names.pop()
        values: NDArray[Any] | None = writer.resolve(name) if is_settled(scope, name) else None
        if values is not None and values.dtype.kind == "f" and bool(np.isinf(values).any()):
            return True
        index = scope.producers.get(name)
        if index is None or index in indices:
            continue
        indices.add(index)
        node = scope.columns.nodes[index]
        if node.op_type in _CARRIERS:
            names += [source for source in node.input if source]
    return False
