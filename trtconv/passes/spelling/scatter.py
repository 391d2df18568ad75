"""Writes scatters that reduce, by comparing positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.sizes import Number, Size, joined, positions, sizes_of, times
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
        return bool(attribute(scope.columns.nodes[index], "reduction", b"none") != b"none")

    def write(self, writer: Writer, target: Target) -> str | None:
        if writer.opset < 13:
            raise Unwritable(f"opset {writer.opset} has no reductions over axes as inputs")
        over, onto, neutral = _REDUCTIONS[writer.attrs["reduction"]]
        dtype = writer.dtype(writer.input(0))
        if target.before(9) and dtype in (np.int16, np.uint16) and over in ("ReduceProd", "ReduceSum"):
            raise Unwritable(f"ONNX has no {over} of {dtype}")
        if dtype.kind in "iu" and not math.isfinite(neutral):
            # TensorRT 8 holds int64 in 32 bits.
            limits = np.iinfo(np.int32 if target.before(9) and dtype == np.int64 else dtype)
            neutral = limits.min if neutral < 0 else limits.max
        write = _write_slices if writer.node.op_type == "ScatterND" else _write_elements
        write(writer, over, onto, np.array(neutral, dtype))
        return None


def _write_elements(writer: Writer, over: str, onto: str, neutral: np.ndarray) -> None:
    """Compares each index with the positions along the axis that is scattered into."""
    data, (name, indices) = writer.input(0), _indices(writer)
    shape = writer.shape(data)
    if len(shape) != len(indices):
        raise Unwritable(f"its indices have {len(indices)} axes, and its data {len(shape)}")
    axis = writer.attrs.get("axis", 0) % len(shape)
    if 0 in indices:
        writer("Identity", data, to=writer.output())
        return
    length, size = shape[axis], writer.size(data, axis)
    _refuse_many(math.prod(size or 1 for size in indices), _USUAL_SLICE if length is None else length)
    after = [axis + 1]
    places = writer.constant(range(length), np.int64) if length is not None else _range(writer, size)
    hit = writer(
        "Equal",
        writer.unsqueeze(_not_negative(writer, name, size), after),
        writer.reshape(places, [-1, *[1] * (len(shape) - axis - 1)]),
    )
    values = writer("Where", hit, writer.unsqueeze(writer.input(2), after), neutral)
    sums = writer.reduce(over, values, [axis], keep=False)
    pairs = [(one, other) for number, (one, other) in enumerate(zip(indices, shape, strict=True)) if number != axis]
    if any(one is None or one != other for one, other in pairs):
        # Along the other axes there may be fewer indices than elements.
        sums = writer("Pad", sums, _lacking(writer, sums, pairs, axis), neutral)
    writer(onto, data, sums, to=writer.output())


def _lacking(writer: Writer, sums: str, pairs: Sequence[tuple[int | None, int | None]], axis: int) -> str:
    """Returns the pads by which sums become as large as the data, of constants where the sizes are known.

    Args:
        writer: Takes the nodes.
        sums: The sums.
        pairs: Of each other axis, how many indices and how many elements there are.
        axis: That which is scattered into.
    """
    rank = len(pairs) + 1
    ends = [None if one is None or other is None else other - one for one, other in pairs]
    ends.insert(axis, 0)
    if None not in ends:
        return writer.constant([*[0] * rank, *ends], np.int64)
    lacking = writer("Sub", writer("Shape", writer.input(0)), writer("Shape", sums))
    return writer("Concat", np.zeros(rank, np.int64), lacking, axis=0)


def _range(writer: Writer, size: str) -> str:
    """Returns the positions on an axis whose size, of one element, is known only at run time."""
    return writer("Range", np.array(0, np.int64), writer.reshape(size, []), np.array(1, np.int64))


def _write_slices(writer: Writer, over: str, onto: str, neutral: np.ndarray) -> None:
    """Compares the place of each slice of updates with all places that there are."""
    rows, count, columns, inner = _rows(writer)
    if count == 0:
        writer("Identity", writer.input(0), to=writer.output())
        return
    if count is None and inner is None:
        raise Unwritable("how many its updates are, and how large, is known only at run time")
    most = columns if isinstance(columns, int) else _USUAL_SLICE
    _refuse_many(count or 1, most * (_USUAL_SLICE if inner is None else inner))
    places = writer.reshape(_as_tensor(writer, positions(writer, columns)), [1, -1, 1])
    hit = writer("Equal", writer.reshape(rows, [count or -1, 1, 1]), places)
    source = writer.reshape(writer.input(2), [count or -1, 1, -1 if inner is None else inner])
    sums = writer.reduce(over, writer("Where", hit, source, neutral), [0], keep=False)
    data = writer.input(0)
    shape = writer.shape(data)
    whole = writer.reshape(sums, writer("Shape", data) if None in shape else list(writer.sizes(data)))
    writer(onto, data, whole, to=writer.output())


def _as_tensor(writer: Writer, numbers: Number) -> str:
    return numbers if isinstance(numbers, str) else writer.constant(numbers, np.int64)


def _refuse_many(updates: int, elements: int) -> None:
    if updates * elements > _MOST:
        raise Unwritable(f"it compares {updates} updates with {elements} elements")


def _indices(writer: Writer) -> tuple[str, tuple[int | None, ...]]:
    """Returns the indices, written as a constant where the model fixes them, and their sizes."""
    values = writer.resolve(writer.input(1))
    if values is None:
        return writer.input(1), writer.shape(writer.input(1))
    return writer.constant(values, np.int64), values.shape


def _rows(writer: Writer) -> tuple[str, int | None, Size, int | None]:
    """Returns where each slice of updates goes, how many there are, in how many places, and the elements of a slice;
    None for these where they are known only at run time."""
    data, (name, indices) = writer.input(0), _indices(writer)
    shape, depth = writer.shape(data), indices[-1]
    if depth is None:
        raise Unwritable(f"how many axes {name!r} counts in is known only at run time")
    outer = sizes_of(writer, data, shape[:depth])
    steps = [_size(times(writer, *outer[axis + 1 :])) for axis in range(depth)]
    where = _not_negative(writer, name, joined(writer, outer))
    rows = writer.reduce("ReduceSum", writer("Mul", where, joined(writer, steps)), [len(indices) - 1], keep=False)
    count = None if None in indices else math.prod(size or 0 for size in indices[:-1])
    inner = None if None in shape[depth:] else math.prod(size or 0 for size in shape[depth:])
    return rows, count, _size(times(writer, *outer)), inner


def _size(number: Number) -> Size:
    return number if isinstance(number, str) else int(number)


def _not_negative(writer: Writer, name: str, sizes: str) -> str:
    """Returns positions that count from the beginning."""
    where = writer.cast(name, np.int64)
    return writer("Where", writer("Less", where, np.array(0, np.int64)), writer("Add", where, sizes), where)
