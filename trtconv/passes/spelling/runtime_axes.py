"""Writes operators whose axes are known only at run time by what the shapes say of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.arguments import REDUCTIONS
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_MOST_WAYS = 6
"""Sets of axes that are computed beside each other, at most."""
Axes = tuple[int, ...]


_POINTWISE = frozenset({"Abs", "Cast", "CastLike", "Exp", "Identity", "Log", "Neg", "Reciprocal", "Relu", "Sqrt"})
"""Operators on single elements, whose output has the shape of their first input."""


def _of_one_shape(scope: Scope, name: str) -> str:
    """Returns a tensor of the same shape as another, whose shape is known; the other itself where there is none."""
    while scope.shape(name) is None:
        readers = scope.consumers.get(name, ())
        further = next((n.output[0] for n in readers if n.op_type in _POINTWISE and n.input[0] == name), "")
        if not further:
            break
        name = further
    return name


class ReduceByShape(Spelling):
    """Writes a reduction over axes known only at run time as those reductions that make the shape that is declared.

    Where one set of axes makes the shape of the output, these are the axes. Where several do, each is computed, and the
    axes choose among them at run time.

    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3,4] x, int64[1] axes) => (float[2,1,4] y) { y = ReduceMean (x, axes) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3,4] x, int64[1] axes) => (float[2,1,4] y) <int64[1] fixed = {1}> { y = ReduceMean (x, fixed) }
    """

    name = "reduce-by-shape"
    ops = frozenset(REDUCTIONS)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        inputs = scope.columns.inputs[index]
        return len(inputs) > 1 and bool(inputs[1]) and scope.constant(inputs[1]) is None

    def write(self, writer: Writer, target: Target) -> str | None:
        keep = bool(writer.attrs.get("keepdims", 1))
        before, after = writer.sizes(writer.input(0)), writer.sizes(_of_one_shape(writer.scope, writer.output()))
        ways = list(dict.fromkeys(_ways(before, after, keep)))
        if not ways or len(ways) > _MOST_WAYS:
            shapes = f"{list(before)} and {list(after)}"
            raise Unwritable(f"its axes are known only at run time, and do not follow from the shapes {shapes}")
        if len(ways) == 1:
            # Over an axis of size 1 every reduction does what it does to single elements.
            axes = ways[0] or tuple(axis for axis, size in enumerate(before) if size == 1)
            writer.again([writer.input(0), writer.constant(axes, np.int64)])
            return f"its axes are {list(axes)}, by the shape {list(after)} of its output"
        self._choose(writer, ways, before)
        return f"computed over {' or '.join(str(list(axes)) for axes in ways)}, as its axes say at run time"

    @staticmethod
    def _choose(writer: Writer, ways: list[Axes], before: Axes) -> None:
        """Writes every way, and takes the one whose axes are all among those that are given."""
        values = writer.cast(writer.input(1), np.int64)
        turned = writer("Add", values, np.array(len(before), np.int64))
        values = writer("Where", writer("Less", values, np.array(0, np.int64)), turned, values)
        result = ""
        for axes in ways:
            name = writer.model.fresh_name(f"{writer.output()}_over_{'_'.join(map(str, axes))}")
            writer.again([writer.input(0), writer.constant(axes, np.int64)], [name])
            if not result:
                result = name
                continue
            telling = [axis for axis in axes if before[axis] != 1]
            hits = writer.cast(writer("Equal", np.array(telling, np.int64)[:, None], values), np.int32)
            count = writer.reduce("ReduceSum", hits, [0, 1], keep=False)
            result = writer("Where", writer("Equal", count, np.array(len(telling), np.int32)), name, result)
        writer("Identity", result, to=writer.output())


def _ways(before: Axes, after: Axes, keep: bool) -> Iterator[Axes]:
    """Yields the sets of axes that make one shape of another; axes of size 1 make no difference where they stay."""
    if keep:
        if len(before) == len(after) and all(b == a or a == 1 for b, a in zip(before, after, strict=True)):
            yield tuple(axis for axis, (b, a) in enumerate(zip(before, after, strict=True)) if b != a)
        return
    earlier = set()
    for axes in itertools.combinations(range(len(before)), len(before) - len(after)):
        if tuple(size for axis, size in enumerate(before) if axis not in axes) == after:
            # Which of several axes of size 1 goes makes no difference.
            telling = tuple(axis for axis in axes if before[axis] != 1)
            if telling not in earlier:
                earlier.add(telling)
                yield axes


class ReshapeByShape(Spelling):
    """Writes Squeeze and Unsqueeze with axes known only at run time as Reshape to the shape that is declared.

    Before:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,3] x, int64[1] axes) => (float[2,1,3] y) { y = Unsqueeze (x, axes) }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,3] x, int64[1] axes) => (float[2,1,3] y) <int64[3] shape = {2, 1, 3}> { y = Reshape (x, shape) }
    """

    name = "reshape-by-shape"
    ops = frozenset({"Squeeze", "Unsqueeze"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        inputs = scope.columns.inputs[index]
        return len(inputs) > 1 and bool(inputs[1]) and scope.constant(inputs[1]) is None

    def write(self, writer: Writer, target: Target) -> str | None:
        shape = writer.shape(writer.output())
        if sum(size is None for size in shape) > 1 or 0 in shape:
            raise Unwritable("its axes are known only at run time, and so are the sizes of its output")
        writer.reshape(writer.input(0), [-1 if size is None else size for size in shape], to=writer.output())
        return None
