"""Writes scatters that reduce, by comparing positions."""

from __future__ import annotations

import math

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.resolve import resolved
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_MOST = 2**24
"""Pairs of an update and an element, at most."""
_USUAL_SLICE = 1024
"""Elements of a slice whose size is known only at run time, to see whether there are too many."""
_REDUCTIONS = {
    "add": ("ReduceSum", "Add", 0.0),
    "mul": ("ReduceProd", "Mul", 1.0),
    "max": ("ReduceMax", "Max", -np.inf),
    "min": ("ReduceMin", "Min", np.inf),
}
"""Reductions to the operator over all updates of an element, that with the element, and what changes nothing."""


class ScatterByPosition(Spelling):
    """Writes ScatterND and ScatterElements with a reduction as a reduction over the updates that hit each element.

    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[3] x, int64[2,1] i, float[2] u) => (float[3] y) { y = ScatterND <reduction = "add"> (x, i, u) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[3] x, int64[2,1] i, float[2] u) => (float[3] y)
        <int64[1,3] at = {0, 1, 2}, float zero = {0}, int64[2] column = {2, 1}, int64[1] first = {0}>
        {
          h = Equal (i, at)  c = Reshape (u, column)  w = Where (h, c, zero)
          s = ReduceSum <keepdims = 0> (w, first)  y = Add (x, s)
        }
    """

    name = "scatter-by-position"
    fixes = ("TC621",)
    ops = frozenset({"ScatterElements", "ScatterND"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return any(
            attribute.name == "reduction" and attribute.s != b"none" for attribute in scope.columns.attributes[index]
        )

    def write(self, writer: Writer, target: Target) -> str | None:
        if writer.opset < 13:
            raise Unwritable(f"opset {writer.opset} has no reductions over axes as inputs")
        over, onto, neutral = _REDUCTIONS[writer.attrs["reduction"]]
        dtype = writer.dtype(writer.input(0))
        if dtype.kind in "iu" and not math.isfinite(neutral):
            limits = np.iinfo(dtype)
            neutral = limits.min if neutral < 0 else limits.max
        rows, updates, columns, inner = (_nd if writer.node.op_type == "ScatterND" else _elements)(writer)
        count = math.prod(updates)
        if not count:
            writer("Identity", writer.input(0), to=writer.output())
            return None
        if count * columns * (_USUAL_SLICE if inner is None else inner) > _MOST:
            raise Unwritable(f"it compares {count} updates with {columns * (inner or 1)} elements")
        places = np.arange(columns, dtype=np.int64)
        hit = writer("Equal", writer.reshape(rows, [count, 1, 1]), places.reshape(1, columns, 1))
        source = writer.reshape(writer.input(2), [count, 1, -1 if inner is None else inner])
        values = writer("Where", hit, source, np.array(neutral, dtype))
        sums = writer.reduce(over, values, [0], keep=False)
        data = writer.input(0)
        whole = writer.reshape(sums, writer("Shape", data) if inner is None else list(writer.sizes(data)))
        writer(onto, data, whole, to=writer.output())
        return None


def _indices(writer: Writer) -> tuple[str, tuple[int, ...]]:
    """Returns the indices, written as a constant where the model fixes them, and their sizes."""
    values = resolved(writer.scope, writer.input(1), writer.model.proto.opset_import)
    if values is None:
        return writer.input(1), writer.sizes(writer.input(1))
    return writer.constant(values, np.int64), values.shape


def _nd(writer: Writer) -> tuple[str, tuple[int, ...], int, int | None]:
    """Returns where each slice of updates goes, how many there are, in how many places, and the elements of a slice;
    None for these where they are known only at run time."""
    shape, (name, indices) = writer.shape(writer.input(0)), _indices(writer)
    depth = indices[-1]
    outer = tuple(size for size in shape[:depth] if size is not None)
    if len(outer) < depth:
        raise Unwritable(f"the sizes of {writer.input(0)!r} that it counts in are known only at run time")
    steps = np.array([math.prod(outer[axis + 1 :]) for axis in range(depth)], np.int64)
    where = _not_negative(writer, name, np.array(outer, np.int64))
    rows = writer.reduce("ReduceSum", writer("Mul", where, steps), [len(indices) - 1], keep=False)
    inner = None if None in shape[depth:] else math.prod(size or 0 for size in shape[depth:])
    return rows, indices[:-1], math.prod(outer), inner


def _elements(writer: Writer) -> tuple[str, tuple[int, ...], int, int | None]:
    """Returns the same of single elements."""
    shape, (name, indices) = writer.sizes(writer.input(0)), _indices(writer)
    if len(shape) != len(indices):
        raise Unwritable(f"its indices have {len(indices)} axes, and its data {len(shape)}")
    axis = writer.attrs.get("axis", 0) % len(shape)
    steps = [math.prod(shape[number + 1 :]) for number in range(len(shape))]
    where = _not_negative(writer, name, np.array(shape[axis], np.int64))
    others = np.zeros(indices, np.int64)
    for number, places in enumerate(np.indices(indices)):
        others += 0 if number == axis else places * steps[number]
    rows = writer("Add", writer("Mul", where, np.array(steps[axis], np.int64)), others)
    return rows, indices, math.prod(shape), 1


def _not_negative(writer: Writer, name: str, sizes: np.ndarray) -> str:
    """Returns positions that count from the beginning."""
    where = writer.cast(name, np.int64)
    return writer("Where", writer("Less", where, np.array(0, np.int64)), writer("Add", where, sizes), where)
