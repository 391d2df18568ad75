"""Choices that no run decides, of which the builder of TensorRT 8.6 makes something else."""

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

_MOST_ELEMENTS = 1 << 22
"""Of a constant that takes a choice's place."""
_MOST_OF_MASK = 1 << 16
"""Elements of a mask that is written as what it comes to."""


class ChooseAtRunTime(Spelling):
    """Gives a Where a condition of run time in place of one that is settled before, where a value is settled too.

    What constants and sizes decide the builder of TensorRT 8.6 works out itself, and wrongly: of one value that stands
    for many it takes the first, and what lies behind it in memory. Executed on 8.6.0: a Where of a constant mask, 0 and
    the shares of an attention made finite numbers of any size at level 3; the same mask as an input, or with as many
    elements as the result, was right at all levels. Where all is constant, so is the result, and a mask that is the
    same everywhere chooses one value.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,3] y) <bool[3] m = {1, 0, 1}, float z = {0}> { y = Where (m, z, x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,3] y) <bool[3] m = {1, 0, 1}, float z = {0}, int64[1] whole = {-1},
        int64[1] begin = {0}, int64[1] end = {1}, int64[1] axis = {0}, float zero = {0}>
        {
          flat = Reshape (x, whole)  one = Slice (flat, begin, end, axis)  size = Abs (one)  less = Less (size, zero)
          true = Not (less)  c = And (m, true)  y = Where (c, z, x)
        }
    """

    name = "choose-at-run-time"
    ops = frozenset({"Where"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        if not target.before(9):
            return False
        condition, *values = scope.columns.inputs[index]
        is_float = (scope.dtype(scope.columns.outputs[index][0]) or "").startswith(("float", "bfloat"))
        return is_float and is_settled(scope, condition) and any(is_settled(scope, name) for name in values)

    def write(self, writer: Writer, target: Target) -> str | None:
        condition, values = writer.input(0), (writer.input(1), writer.input(2))
        if not writer.shape(writer.output()):
            raise Unwritable("")
        constant = _result(writer)
        if constant is not None:
            writer("Identity", writer.constant(constant), to=writer.output())
            return "a choice between constants written as what it comes to"
        value = _only_value(writer)
        if value:
            writer("Identity", value, to=writer.output())
            return "a Where that always takes the same value written as that"
        source = next((name for name in values if not is_settled(writer.scope, name)), "")
        if not source:
            # Of sizes that are free, which the builder cannot know.
            raise Unwritable("")
        first = writer.slice(writer.reshape(source, [-1]), [0], [1], [0])
        first = first if writer.dtype(source) == np.float32 else writer.cast(first, np.float32)
        # False of every number, and of what is none.
        never = writer("Less", writer("Abs", first), np.zeros((), np.float32))
        mask = writer.resolve(condition)
        if mask is not None and writer.scope.constant(condition) is None and mask.size <= _MOST_OF_MASK:
            # What the builder makes of it is not left to the builder.
            condition = writer.constant(mask)
        if mask is None or mask.any():
            settled = writer("And", condition, writer("Not", never))
        else:
            # And would leave nothing of the run.
            settled = writer("Xor", condition, never)
        writer("Where", settled, *values, to=writer.output())
        return "the condition of a Where, which is settled before, made one of run time"


def _only_value(writer: Writer) -> str:
    """Returns the value that a Where takes everywhere, where that has its result's shape; empty for none."""
    condition = writer.resolve(writer.input(0))
    if condition is None or not condition.size or condition.any() != condition.all():
        return ""
    value, other = (1, 2) if condition.all() else (2, 1)
    shape, beside = writer.shape(writer.input(value)), (condition.shape, writer.shape(writer.input(other)))
    adds_nothing = all(len(part) <= len(shape) and set(part) <= {1} for part in beside)
    is_alike = None not in shape and tuple(shape) == tuple(writer.shape(writer.output()))
    return writer.input(value) if adds_nothing or is_alike else ""


def _result(writer: Writer) -> NDArray[Any] | None:
    """Returns what a choice comes to; None where that is not known yet, or too much."""
    sizes = [size for size in writer.shape(writer.output()) if size is not None]
    is_known = len(sizes) == len(writer.shape(writer.output()))
    return writer.resolve(writer.output()) if is_known and math.prod(sizes) <= _MOST_ELEMENTS else None
