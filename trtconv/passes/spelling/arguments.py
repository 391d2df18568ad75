"""Writes down what a parser wants as constants, or cannot compute: axes, sizes, counts, positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

REDUCTIONS = tuple(
    f"Reduce{kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)
_SLOTS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(REDUCTIONS, (1,)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (1, 2)),
    "Resize": (2,),
    "Split": (1,),
    "Squeeze": (1,),
    "STFT": (1, 3),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Operators to the inputs that a parser takes as constants alone, or reads wrongly otherwise."""
_OLDER: Mapping[str, tuple[int, ...]] = {
    "Pad": (1, 3),
    "Resize": (1, 2, 3),
    "Slice": (3,),
    "DFT": (1, 2),
}
"""Those to which older operators, which TensorRT 8.6 takes, are fitted."""
_SINGLE: Mapping[str, tuple[int, ...]] = {"NonMaxSuppression": (2, 3, 4), "TopK": (1,)}
"""Operators to the inputs that hold one number, and that a parser breaks down over where their length is dynamic."""
_LISTS: Mapping[str, tuple[int, ...]] = {"Expand": (1,), "Slice": (1, 2, 3, 4)}
"""Operators to the inputs that are lists, where files may have a number without axes."""


def _slots(op: str, target: Target) -> tuple[int, ...]:
    return _OLDER.get(op, _SLOTS.get(op, ())) if target.before(9) else _SLOTS.get(op, ())


class FixArguments(Spelling):
    """Writes axes, sizes and counts as constants where the model's constants and known sizes fix them.

    TensorRT's parser wants the axes of a reduction as an initializer, and folds few of the nodes that may compute them.

    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3,4] x) => (float[2,1,1] y) <int64 first = {1}, int64 step = {1}>
        { s = Shape (x)  n = Size (s)  axes = Range (first, n, step)  y = ReduceMean (x, axes) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3,4] x) => (float[2,1,1] y) <int64[2] axes = {1, 2}> { y = ReduceMean (x, axes) }
    """

    name = "fix-arguments"
    ops = frozenset({*_SLOTS, *_OLDER})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        inputs = columns.inputs[index]
        names = [inputs[slot] for slot in _slots(columns.ops[index], target) if slot < len(inputs) and inputs[slot]]
        return any(name in scope.producers and scope.constant(name) is None for name in names)

    def write(self, writer: Writer, target: Target) -> str | None:
        node = writer.node
        inputs: list[str] = list(node.input)
        fixed = []
        for slot in _slots(node.op_type, target):
            name = writer.input(slot)
            if not name or writer.scope.constant(name) is not None:
                continue
            values = writer.resolve(name)
            if values is not None:
                inputs[slot] = writer.constant(values)
                fixed.append(f"{name} = {np.asarray(values).reshape(-1).tolist()[:8]}")
        if not fixed:
            raise Unwritable
        writer.again(inputs)
        return f"{', '.join(fixed)} written as constants"


class WriteSelections(Spelling):
    """Writes NonZero of a tensor that the model's constants and known sizes fix as the positions that it finds.

    TensorRT-RTX has no NonZero, and how many positions there are is known only at run time to the others; a mask that
    Python fills and asks for its places, as torch's older exporter writes assignments to a slice, is a constant.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3] x) => (float[2] y) <bool[3] mask = {1, 0, 1}, int64[1] flat = {-1}>
        { at = NonZero (mask)  i = Reshape (at, flat)  y = Gather (x, i) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3] x) => (float[2] y) <int64[1] flat = {-1}, int64[1,2] places = {0, 2}>
        { at = Identity (places)  i = Reshape (at, flat)  y = Gather (x, i) }
    """

    name = "write-selections"
    ops = frozenset({"NonZero"})
    fixes = ("TC204",)

    def write(self, writer: Writer, target: Target) -> str | None:
        values = writer.resolve(writer.input(0))
        if values is None:
            raise Unwritable
        if not values.ndim:
            raise Unwritable("of a scalar ONNX's definition and ONNX Runtime find positions of different shapes")
        writer("Identity", np.array(np.nonzero(values), np.int64), to=writer.output())
        return f"{values.size} known values written as the positions of those that are not zero"


class WriteSliceAxes(Spelling):
    """Writes which axes a Slice cuts, and by which steps, where it cuts the first ones alone and leaves that unsaid.

    TensorRT's parser takes all axes for meant, and refuses fewer bounds than there are axes.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[6,5] x) => (float[4,5] y) <int64[1] first = {1}, int64[1] end = {5}> { y = Slice (x, first, end) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[6,5] x) => (float[4,5] y)
        <int64[1] first = {1}, int64[1] end = {5}, int64[1] axes = {0}, int64[1] steps = {1}>
        { y = Slice (x, first, end, axes, steps) }
    """

    name = "write-slice-axes"
    ops = frozenset({"Slice"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        inputs = scope.columns.inputs[index]
        return len(inputs) > 2 and not "".join(inputs[3:4]) and _cuts_few(scope, inputs)

    def write(self, writer: Writer, target: Target) -> str | None:
        data, starts, ends = writer.node.input[:3]
        (count,) = writer.sizes(starts)
        dtype = writer.dtype(starts)
        steps = writer.input(4) or writer.constant([1] * count, dtype)
        writer.again([data, starts, ends, writer.constant(range(count), dtype), steps])
        return f"axes 0 to {count - 1} written"


def _cuts_few(scope: Scope, inputs: Sequence[str]) -> bool:
    """Whether a Slice has fewer bounds than its tensor has axes."""
    shape, bounds = scope.shape(inputs[0]), scope.shape(inputs[1])
    count = bounds[0] if bounds is not None and len(bounds) == 1 else None
    return count is not None and (shape is None or count < len(shape))


class WidenBounds(Spelling):
    """Writes the bounds of a Slice in int64 where its steps are int32 and known only at run time.

    TensorRT's parser compares such steps with numbers of int64, and refuses two types.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n] x) => (float[m] y) <int32[1] one = {1}, int32[1] axis = {0}>
        { s = Shape (x)  n32 = Cast <to = 6> (s)  step = Sub (n32, one)  y = Slice (x, one, n32, axis, step) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n] x) => (float[m] y) <int32[1] one = {1}, int64[1] first = {1}, int64[1] axis = {0}> {
          s = Shape (x)  n32 = Cast <to = 6> (s)  step = Sub (n32, one)
          end = Cast <to = 7> (n32)  wide = Cast <to = 7> (step)  y = Slice (x, first, end, axis, wide)
        }
    """

    name = "widen-bounds"
    ops = frozenset({"Slice"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        steps = scope.columns.inputs[index][4:]
        return bool(steps) and scope.constant(steps[0]) is None and scope.dtype(steps[0]) == "int32"

    def write(self, writer: Writer, target: Target) -> str | None:
        data, *bounds = writer.node.input
        writer.again([data, *(name and writer.cast_or_fold(name, np.int64) for name in bounds)])
        return None


class ReshapeSingleNumbers(Spelling):
    """Says of a number that is to be a list of one that it is one.

    TensorRT's parser refuses a Slice or an Expand whose numbers have no axes; over a number of TopK or
    NonMaxSuppression whose length is dynamic it ends by a segmentation fault, and with it the process that asked.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,4] x, int64[one] k) => (float[2,m] v, int64[2,m] i) { v, i = TopK (x, k) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,4] x, int64[one] k) => (float[2,m] v, int64[2,m] i) <int64[1] single = {1}>
        { n = Reshape (k, single)  v, i = TopK (x, n) }
    """

    name = "reshape-single-numbers"
    ops = frozenset({*_SINGLE, *_LISTS})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return bool(_single_numbers(scope, scope.columns.ops[index], scope.columns.inputs[index]))

    def write(self, writer: Writer, target: Target) -> str | None:
        inputs: list[str] = list(writer.node.input)
        slots = _single_numbers(writer.scope, writer.node.op_type, inputs)
        names = [inputs[slot] for slot in slots]
        for slot in slots:
            values = writer.scope.values(inputs[slot])
            inputs[slot] = writer.reshape(inputs[slot], [1]) if values is None else writer.constant(values.reshape(1))
        writer.again(inputs)
        return f"{', '.join(names)} reshaped to the one number that it is"


def _single_numbers(scope: Scope, op: str, inputs: Sequence[str]) -> list[int]:
    """Returns the slots of single numbers whose length is not known, and of lists that are numbers without axes."""
    slots, shape = (_SINGLE[op], (None,)) if op in _SINGLE else (_LISTS[op], ())
    return [slot for slot in slots if slot < len(inputs) and inputs[slot] and scope.shape(inputs[slot]) == shape]
