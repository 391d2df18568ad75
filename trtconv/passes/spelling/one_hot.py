"""Writes OneHot, Hardmax, EyeLike and Compress by comparing positions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from onnx import helper

from trtconv.core.target import Target
from trtconv.graph.operators import lacks_operator
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.sizes import Size, positions
from trtconv.passes.spelling.writer import Unwritable, Writer

_ONE_AXIS_OPSET = 13
"""From which a Hardmax looks at one axis alone."""
_DOMAINS = set(ONNX_DOMAINS)
_LONGEST = 4096
"""The longest list that is written of a OneHot."""


class ComparePositions(Spelling):
    """Writes OneHot whose depth comes at run time, EyeLike of such sizes, and Hardmax where it lacks, as comparisons.

    A Hardmax of before opset 13 is over all axes from its own on, which TensorRT takes for its own alone: it gets a
    matrix. TensorRT 8.6 takes no list of sizes from a OneHot, which is a matrix, as torch's older exporter writes a
    `repeat_interleave`: they are gathered one by one.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,3] x) => (float[2,3] y) { y = Hardmax (x) }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,3] x) => (float[2,3] y) <int64[1,3] at = {0, 1, 2}, float one = {1}, float zero = {0}>
        { i = ArgMax <axis = 1> (x)  e = Equal (i, at)  y = Where (e, one, zero) }
    """

    name = "compare-positions"
    ops = frozenset({"EyeLike", "OneHot", "Hardmax"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        if columns.ops[index] == "Hardmax":
            return True
        if columns.ops[index] == "EyeLike":
            return None in (scope.shape(columns.inputs[index][0]) or ())
        return scope.constant(columns.inputs[index][1]) is None or target.before(9)

    def _sites(self, scope: Scope, target: Target) -> list[int]:
        sites = super()._sites(scope, target)
        return sorted([*sites, *_lists_of_hits(scope)]) if target.before(9) else sites

    def write(self, writer: Writer, target: Target) -> str | None:
        if writer.node.op_type == "Hardmax":
            self._hardmax(writer, lacks_operator("Hardmax", target))
        elif writer.node.op_type == "EyeLike":
            self._eye_like(writer)
        elif writer.node.op_type == "Reshape":
            _list_hits(writer)
        else:
            self._one_hot(writer)
        return None

    @staticmethod
    def _one_hot(writer: Writer) -> None:
        rank = len(writer.shape(writer.input(0))) + 1
        axis = writer.attrs.get("axis", -1) % rank
        values = writer.resolve(writer.input(1))
        size = writer.shape(writer.output())[axis] if values is None else int(values.reshape(-1)[0])
        depth: Size = writer.reshape(writer.cast(writer.input(1), np.int64), []) if size is None else size
        where = writer.cast(writer.input(0), np.int64)
        # Negative positions count from the end; those beyond it hit nothing.
        turned = writer("Add", where, depth if isinstance(depth, str) else np.array(depth, np.int64))
        where = writer("Where", writer("Less", where, np.array(0, np.int64)), turned, where)
        shape = [-1 if number == axis else 1 for number in range(rank)]
        along = (
            writer.reshape(str(positions(writer, depth)), shape)
            if isinstance(depth, str)
            else np.arange(depth, dtype=np.int64).reshape(shape)
        )
        hit = writer("Equal", writer.unsqueeze(where, [axis]), along)
        off, on = (writer("Gather", writer.input(2), np.array([index], np.int64), axis=0) for index in (0, 1))
        writer("Where", hit, on, off, to=writer.output())

    @staticmethod
    def _eye_like(writer: Writer) -> None:
        if len(writer.shape(writer.input(0))) != 2:
            raise Unwritable("its input has not two axes")
        rows, columns = (_positions(writer, axis) for axis in (0, 1))
        diagonal = writer("Add", writer.unsqueeze(rows, [1]), np.array(writer.attrs.get("k", 0), np.int64))
        code = writer.attrs.get("dtype", 0)
        dtype = helper.tensor_dtype_to_np_dtype(code) if code else writer.dtype(writer.input(0))
        writer.cast(writer("Equal", diagonal, columns), dtype, to=writer.output())

    @staticmethod
    def _hardmax(writer: Writer, is_lacking: bool) -> None:
        name = writer.input(0)
        shape = writer.shape(name)
        is_old = writer.opset < _ONE_AXIS_OPSET
        axis = writer.attrs.get("axis", 1 if is_old else -1) % len(shape)
        several = is_old and axis < len(shape) - 1
        if not (several or is_lacking):
            raise Unwritable
        write = _first_hit if is_lacking else _hardmax_of_rows
        if not several:
            write(writer, name, shape, axis, writer.output())
            return
        columns = None if None in shape[axis:] else math.prod(size or 0 for size in shape[axis:])
        result = write(writer, writer("Flatten", name, axis=axis), (None, columns), 1, "")
        writer.reshape(result, writer("Shape", name), to=writer.output())


def _lists_of_hits(scope: Scope) -> Iterator[int]:
    """Yields the Reshapes that make a list of what a OneHot made."""
    columns = scope.columns
    for index in scope.by_op.get("OneHot", ()):
        for reader in scope.readers.get(columns.outputs[index][0], ()):
            is_reshape = (
                columns.ops[reader] == "Reshape" and {columns.domains[at] for at in (index, reader)} <= _DOMAINS
            )
            is_data = is_reshape and columns.inputs[reader][0] == columns.outputs[index][0]
            if is_data and len(scope.shape(columns.outputs[reader][0]) or ()) == 1:
                yield reader


def _list_hits(writer: Writer) -> None:
    """Takes the elements of the list from the two values: TensorRT computes with a list of sizes, not with a matrix."""
    source = writer.scope.columns.nodes[writer.scope.producers[writer.input(0)]]
    positions, depth = writer.resolve(source.input[0]), writer.resolve(source.input[1])
    if positions is None or depth is None:
        raise Unwritable
    if depth.size != 1 or not (np.isfinite(depth).all() and np.isfinite(positions).all()):
        raise Unwritable
    size = int(depth.reshape(()))
    if not 0 < size * positions.size <= _LONGEST:
        raise Unwritable
    axis = next((attribute.i for attribute in source.attribute if attribute.name == "axis"), -1)
    classes = positions.astype(np.int64)
    hits = np.equal.outer(np.where(classes < 0, classes + size, classes), np.arange(size))
    at = np.moveaxis(hits, -1, axis).reshape(-1).astype(np.int64)
    writer("Gather", source.input[2], at, axis=0, to=writer.output())


def _hardmax_of_rows(writer: Writer, name: str, shape: Sequence[int | None], axis: int, to: str) -> str:
    return writer("Hardmax", name, axis=axis, to=to)


def _first_hit(writer: Writer, name: str, shape: Sequence[int | None], axis: int, to: str) -> str:
    """Returns ones where a tensor of a shape is largest along an axis for the first time."""
    size, dtype = shape[axis], writer.dtype(writer.input(0))
    if size is None:
        raise Unwritable(f"the size of axis {axis} is known only at run time")
    positions = np.arange(size, dtype=np.int64).reshape([size if number == axis else 1 for number in range(len(shape))])
    hit = writer("Equal", writer("ArgMax", name, axis=axis, keepdims=1), positions)
    return writer("Where", hit, np.ones((), dtype), np.zeros((), dtype), to=to)


def _positions(writer: Writer, axis: int) -> str:
    """Writes the positions along an axis of the first input."""
    name = writer.input(0)
    size = writer.shape(name)[axis]
    if size is not None:
        return writer.constant(np.arange(size, dtype=np.int64))
    count = writer("Gather", writer("Shape", name), np.array(axis, np.int64), axis=0)
    return writer("Range", np.array(0, np.int64), count, np.array(1, np.int64))


class CompressBySize(Spelling):
    """Writes Compress as Gather: of constant positions, or of as many as the output is declared to have.

    Before:
        <ir_version: 8, opset_import: ["": 11]>
        g (float[3,2] x) => (float[2,2] y) <bool[3] c = {1, 0, 1}> { y = Compress <axis = 0> (x, c) }
    After:
        <ir_version: 8, opset_import: ["": 11]>
        g (float[3,2] x) => (float[2,2] y) <int64[2] i = {0, 2}> { y = Gather <axis = 0> (x, i) }
    """

    name = "compress-by-size"
    ops = frozenset({"Compress"})

    def write(self, writer: Writer, target: Target) -> str | None:
        name, axis = writer.input(0), writer.attrs.get("axis")
        if axis is None:
            name, axis = writer.reshape(name, [-1]), 0
        mask = writer.resolve(writer.input(1))
        if mask is not None:
            writer("Gather", name, np.flatnonzero(mask).astype(np.int64), to=writer.output(), axis=axis)
            return None
        count, (size,) = writer.sizes(writer.output())[axis], writer.sizes(writer.input(1))
        # The first positions that are wanted: the others are put behind all of them.
        places = np.arange(size, dtype=np.float32)
        ranks = writer("Where", writer.input(1), places, places + size)
        _, order = writer("TopK", ranks, np.array([count], np.int64), outputs=2, axis=0, largest=0, sorted=1)
        writer("Gather", name, order, to=writer.output(), axis=axis)
        return None
