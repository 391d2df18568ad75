"""Bags of rows of a table, as torch's EmbeddingBag reduces them, without a loop."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.bag_loops import Bag, BagLoop, Offset, body_of
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.offsets import TO_THE_END, copied, flat_of, length_of, rest_of
from trtconv.passes.spelling.trip_counts import goes_on
from trtconv.passes.spelling.writer import Unwritable, Writer


class ReduceBags(Spelling):
    """Writes a loop that reduces bags of rows, one a step, as one reduction of all.

    Both of torch's exporters write EmbeddingBag as a Loop, the newer one with a sequence. Bags of one length are an
    axis of their own; others are marked in a matrix of bags and rows, which the rows are multiplied by, or masked by
    for the largest. Offsets of the run time are taken for places of rows, as torch demands: from 0 to the number of
    rows.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[5,3] t, int64[6] x, int64[4] o) => (float[3,3] y)
        <int64 three = {3}, bool on = {1}, int64[1] zero = {0}, int64 one = {1}> {
          y = Loop <body = b (int64 i, bool c) => (bool d, float[3] z) {
                d = Identity (c)  j = Add (i, one)
                p = Gather (o, i)  q = Gather (o, j)  begin = Unsqueeze (p, zero)  end = Unsqueeze (q, zero)
                r = Slice (x, begin, end, zero)  s = Gather (t, r)  z = ReduceSum <keepdims = 0> (s, zero)
              }> (three, on)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[5,3] t, int64[6] x, int64[4] o) => (float[3,3] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3}, int64[1] four = {4},
         int64[1,6] at = {0, 1, 2, 3, 4, 5}> {
          p = Slice (o, zero, three, zero)  q = Slice (o, one, four, zero)
          begin = Unsqueeze (p, one)        end = Unsqueeze (q, one)
          r = Less (at, begin)  s = Not (r)  u = Less (at, end)  v = And (s, u)
          mask = Cast <to = 1> (v)  rows = Gather (t, x)  y = MatMul (mask, rows)
        }
    """

    name = "reduce-bags"
    ops = frozenset({"ConcatFromSequence", "Loop"})

    def write(self, writer: Writer, target: Target) -> str | None:
        loop, bag, count = _of_loop(writer) if writer.node.op_type == "Loop" else _of_sequence(writer)
        grid = _grid(writer, bag, count)
        if grid:
            _reduce_grid(writer, bag, grid)
            return f"the bags of one length of {loop} as an axis"
        _reduce_marked(writer, bag, count)
        return f"the bags of {loop} reduced at once"


def _of_loop(writer: Writer) -> tuple[str, Bag, str]:
    """Returns the name of a Loop that stacks bags, what each is, and the tensor of their number."""
    loop, body = writer.node, body_of(writer.node)
    if len(loop.output) != 1 or len(body.output) != 2 or not loop.input[0] or not goes_on(writer):
        raise Unwritable
    if writer.input(1) and not writer.values(1, "condition").all():
        raise Unwritable
    inside = BagLoop(writer, loop)
    bag = inside.bag(body.output[1].name)
    if bag.keeps:
        raise Unwritable
    return loop.name, bag, inside.steps()


def _of_sequence(writer: Writer) -> tuple[str, Bag, str]:
    """Returns the same of a Loop that puts its bags into a sequence, which the node joins."""
    loop = writer.scope.producer(writer.input(0))
    if loop is None or loop.op_type != "Loop" or attribute(writer.node, "axis") or attribute(writer.node, "new_axis"):
        raise Unwritable
    body = body_of(loop)
    slot = list(loop.output).index(writer.input(0))
    begin = writer.scope.producer(loop.input[slot + 2])
    insert = next((node for node in body.node if body.output[slot + 1].name in node.output), None)
    if begin is None or begin.op_type != "SequenceEmpty" or insert is None or insert.op_type != "SequenceInsert":
        raise Unwritable
    # Without a place it is put at the end.
    if list(filter(None, insert.input)) != [body.input[slot + 2].name, insert.input[1]]:
        raise Unwritable
    inside = BagLoop(writer, loop)
    bag = inside.bag(insert.input[1])
    if loop.input[0] or not bag.keeps:
        raise Unwritable
    return loop.name, bag, inside.steps()


def _column(writer: Writer, entry: Offset, count: str, *, is_whole: bool) -> str:
    """Writes an entry of all steps, by the list that the loop reads.

    Args:
        writer: Takes the nodes.
        entry: The entry.
        count: The tensor of how many steps there are.
        is_whole: Whether there are as many as pairs of neighbours among the offsets.
    """
    if not is_whole:
        first, steps = entry.ahead_there, writer.resolve(count)
        if steps is not None:
            return _long(writer, entry.part, writer.slice(entry.part, [first], [first + int(steps.item())], [0]))
        end = writer("Add", writer.reshape(_long(writer, count), [1]), np.array([first], np.int64))
        return _long(writer, entry.part, writer.slice(entry.part, [first], end, [0]))
    # The last entry is no beginning, and the first one no end.
    if not entry.ahead:
        return _long(writer, entry.part, writer.slice(entry.part, [0], [-1], [0]))
    ends = writer.slice(entry.part, [1], [TO_THE_END], [0]) if entry.ahead_there else entry.part
    return _long(writer, entry.part, ends)


def _long(writer: Writer, name: str, part: str = "") -> str:
    """Returns a tensor of the model, or a part of it, as int64."""
    return (part or name) if writer.dtype(name) == np.int64 else writer.cast(part or name, np.int64)


def _places(writer: Writer, source: str) -> str:
    """Writes the numbers of all rows, as a row."""
    size = writer.shape(source)[0]
    if size is not None:
        return writer.constant(np.arange(size)[None])
    count = writer.squeeze(writer.size(source, 0), [0])
    return writer.unsqueeze(writer("Range", np.array(0, np.int64), count, np.array(1, np.int64)), [0])


def _starts(scope: Scope, bag: Bag, count: str) -> str:
    """Returns the list of where bags begin, if each ends where the next begins or all rows end; else nothing."""
    begin, end = bag.rows.begin, bag.rows.end
    joined = scope.producer(begin.offsets)
    is_next = isinstance(end, Offset) and (end.offsets, begin.ahead, end.ahead) == (begin.offsets, 0, 1)
    if not is_next or joined is None or joined.op_type != "Concat" or len(joined.input) != 2:
        return ""
    starts, length = joined.input[0], length_of(scope, count)
    # There are as many as offsets, or as offsets behind the first one.
    is_all = length != "" and (length == flat_of(scope, starts) or rest_of(scope, length) == (begin.offsets, 1))
    return starts if is_all and scope.shape(joined.input[1]) == (1,) else ""


def _grid(writer: Writer, bag: Bag, count: str) -> str:
    """Returns the tensor of two axes whose rows are the bags; nothing where they are none."""
    scope = writer.scope
    starts, flat = _starts(scope, bag, count), _numbers(scope, bag.rows.source)
    while (node := scope.producer(flat)) is not None and node.op_type in ("Identity", "Reshape"):
        flat = node.input[0]
        if len(scope.shape(flat) or ()) == 2:
            break
    if not starts or bag.rows.last is not None or len(scope.shape(flat) or ()) != 2:
        return ""
    node = copied(scope, starts)
    if node is None or node.op_type != "Range" or not _is_zero(scope, node.input[0]):
        return ""
    is_all = _is_count_of(scope, node.input[1], flat)
    return flat if is_all and _is_size(scope, node.input[2], flat, 1) else ""


def _numbers(scope: Scope, name: str) -> str:
    """Returns the list that has as many entries as a tensor has rows, by which they were looked up; or the tensor."""
    while len(scope.shape(name) or ()) == 2 and (node := scope.producer(name)) is not None:
        if node.op_type == "Gather" and not attribute(node, "axis", 0):
            return str(node.input[1])
        if node.op_type not in ("Identity", "Mul"):
            break
        name = node.input[0]
    return name


def _is_count_of(scope: Scope, name: str, grid: str) -> bool:
    """Whether a tensor is the number of elements of another one of two axes."""
    node = copied(scope, name)
    if node is None:
        return False
    if node.op_type == "ReduceProd":
        shape = copied(scope, node.input[0])
        return shape is not None and shape.op_type == "Shape" and shape.input[0] == grid and len(shape.attribute) == 0
    return node.op_type == "Mul" and any(
        _is_size(scope, first, grid, 0) and _is_size(scope, second, grid, 1)
        for first, second in (node.input, reversed(node.input))
    )


def _is_size(scope: Scope, name: str, tensor: str, axis: int) -> bool:
    """Whether a tensor is the size of an axis of another one."""
    values = scope.values(name)
    shape = scope.shape(tensor)
    if values is not None:
        return shape is not None and values.size == 1 and shape[axis] == int(values.reshape(-1)[0])
    node, first = copied(scope, name), axis
    end: int | None = axis + 1
    if node is not None and node.op_type == "Gather":
        index = scope.values(node.input[1])
        node, first, end = scope.producer(node.input[0]), 0, None
        if index is None or index.reshape(-1).tolist() != [axis]:
            return False
    if node is None or node.op_type != "Shape" or node.input[0] not in _like(scope, tensor, axis):
        return False
    return bool(attribute(node, "start", 0) == first and attribute(node, "end") == end)


def _like(scope: Scope, tensor: str, axis: int) -> set[str]:
    """Returns a tensor, and the inputs of its graph that share the name of its size with it."""
    inputs = {value.name: value.type.tensor_type.shape.dim for value in scope.graph.input}
    names = {name: dims[axis].dim_param for name, dims in inputs.items() if axis < len(dims)}
    label = names.get(tensor)
    return {tensor} | {name for name in names if label and names[name] == label}


def _is_zero(scope: Scope, name: str) -> bool:
    values = scope.values(name)
    return values is not None and not values.any()


def _reduce_grid(writer: Writer, bag: Bag, grid: str) -> None:
    """Reduces rows that lie in bags of one length, which has at least one."""
    sizes = writer("Concat", writer("Shape", grid), np.array([-1], np.int64), axis=0)
    writer.reduce(bag.op, writer.reshape(bag.rows.write(), sizes), [1], keep=False, to=writer.output())


def _reduce_marked(writer: Writer, bag: Bag, count: str) -> None:
    """Reduces rows that a matrix assigns to bags."""
    dtype, rows = writer.dtype(bag.rows.values), bag.rows
    if rows.rank != 2 or dtype.kind != "f" or not isinstance(rows.end, Offset):
        raise Unwritable("its rows are no lists of floats")
    values = writer.scope.values(rows.values) if bag.op != "ReduceMax" else None
    if values is not None and not np.isfinite(values).all():
        # Zero times infinity is not zero.
        raise Unwritable("its rows are not finite")
    is_whole = bool(_starts(writer.scope, bag, count))
    first, stated = (_column(writer, entry, count, is_whole=is_whole) for entry in (rows.begin, rows.end))
    last = stated
    if rows.last is not None:
        last = writer("Concat", writer.slice(stated, [0], [-1], [0]), writer("Shape", rows.last.of), axis=0)
    begins, ends = (writer.unsqueeze(column, [1]) for column in (first, last))
    places = _places(writer, rows.source)
    inside = writer("And", writer("Not", writer("Less", places, begins)), writer("Less", places, ends))
    if bag.op == "ReduceMax":
        _largest(writer, bag, inside, (first, stated))
        return
    mask, to = writer.cast(inside, dtype), "" if bag.op == "ReduceMean" else writer.output()
    total = writer("MatMul", mask, rows.write(), to=to)
    if bag.op == "ReduceMean":
        number = writer("Sub", ends, begins)
        if bag.empty_is_zero:
            number = writer("Max", number, np.array(1, np.int64))
        writer("Div", total, writer.cast(number, dtype), to=writer.output())


def _largest(writer: Writer, bag: Bag, inside: str, bounds: tuple[str, str]) -> None:
    """Writes the largest of the rows inside each bag; zero for one that ends where it begins, if that is asked."""
    lowest = np.array(-np.inf, writer.dtype(bag.rows.values))
    masked = writer("Where", writer.unsqueeze(inside, [2]), writer.unsqueeze(bag.rows.write(), [0]), lowest)
    if not bag.empty_is_zero:
        writer.reduce("ReduceMax", masked, [1], keep=False, to=writer.output())
        return
    is_empty = writer.unsqueeze(writer("Equal", *bounds), [1])
    most = writer.reduce("ReduceMax", masked, [1], keep=False)
    writer("Where", is_empty, np.zeros((), lowest.dtype), most, to=writer.output())
