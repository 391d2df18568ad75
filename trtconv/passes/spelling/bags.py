"""Bags of rows of a table, as torch's EmbeddingBag reduces them, without a loop."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.passes.spelling.bag_grids import grid_of, starts_of
from trtconv.passes.spelling.bag_loops import BagLoop, body_of
from trtconv.passes.spelling.bag_rows import Bag, Count, Length, Offset
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.offsets import TO_THE_END
from trtconv.passes.spelling.trip_counts import goes_on
from trtconv.passes.spelling.writer import Unwritable, Writer


class ReduceBags(Spelling):
    """Writes a loop that reduces bags of rows, one a step, as one reduction of all.

    Both of torch's exporters write EmbeddingBag as a Loop, the newer one with a sequence. Bags of one length are an
    axis of their own; others are marked in a matrix of bags and rows, which rows without infinity or NaN, as those of
    a constant table are, are multiplied by. Weights of the rows are put into it. Other rows, and all for the largest,
    are masked by it, which takes an array of bags, rows and columns. Offsets are what a Slice takes them for:
    negative ones count from the end of the rows, and beyond the rows there are none. A number that no bag looks up
    may be no row's.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (int64[6] x, int64[4] o) => (float[3,2] y)
        <int64 three = {3}, bool on = {1}, int64[1] zero = {0}, int64 one = {1}, float[2,2] t = {1, 2, 3, 4}> {
          y = Loop <body = b (int64 i, bool c) => (bool d, float[2] z) {
                d = Identity (c)  j = Add (i, one)
                p = Gather (o, i)  q = Gather (o, j)  begin = Unsqueeze (p, zero)  end = Unsqueeze (q, zero)
                r = Slice (x, begin, end, zero)  s = Gather (t, r)  z = ReduceSum <keepdims = 0> (s, zero)
              }> (three, on)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (int64[6] x, int64[4] o) => (float[3,2] y)
        <float[2,2] t = {1, 2, 3, 4}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3},
         int64[1] four = {4}, int64[1] six = {6}, int64[1,6] at = {0, 1, 2, 3, 4, 5}, float none = {0},
         int64 first = {0}> {
          p = Slice (o, zero, three, zero)   q = Slice (o, one, four, zero)
          pn = Less (p, zero)  pe = Add (p, six)  pf = Where (pn, pe, p)  begin = Unsqueeze (pf, one)
          qn = Less (q, zero)  qe = Add (q, six)  qf = Where (qn, qe, q)  end = Unsqueeze (qf, one)
          r = Less (at, begin)  s = Not (r)  u = Less (at, end)  v = And (s, u)  mask = Cast <to = 1> (v)
          number = ReduceSum <keepdims = 0> (mask, zero)  covered = Greater (number, none)
          places = Where (covered, x, first)  rows = Gather (t, places)  y = MatMul (mask, rows)
        }
    """

    name = "reduce-bags"
    ops = frozenset({"ConcatFromSequence", "Loop"})

    def write(self, writer: Writer, target: Target) -> str | None:
        loop, bag, count = _of_loop(writer) if writer.node.op_type == "Loop" else _of_sequence(writer)
        grid = grid_of(writer.scope, bag, count)
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


def _reduce_grid(writer: Writer, bag: Bag, grid: str) -> None:
    """Reduces rows that lie in bags of one length, which has at least one."""
    sizes = writer("Concat", writer("Shape", grid), np.array([-1], np.int64), axis=0)
    writer.reduce(bag.op, writer.reshape(bag.rows.content.write(""), sizes), [1], keep=False, to=writer.output())


def _reduce_marked(writer: Writer, bag: Bag, count: str) -> None:
    """Reduces rows that a matrix assigns to bags."""
    content, dtype = bag.rows.content, writer.dtype(bag.rows.content.typed)
    if content.rank != 2 or dtype.kind != "f" or not isinstance(bag.rows.end, Offset):
        raise Unwritable("its rows are no lists of floats")
    is_whole = bool(starts_of(writer.scope, bag, count))
    begin, end = (_column(writer, entry, count, is_whole=is_whole) for entry in (bag.rows.begin, bag.rows.end))
    inside = _inside(writer, bag, begin, end)
    finite = content.finite() if bag.op != "ReduceMax" else None
    mask = writer.cast(inside, dtype) if content.looks_up or (finite is not None and finite[1] is None) else ""
    covered = ""
    if content.looks_up:
        covered = writer("Greater", writer.reduce("ReduceSum", mask, [0], keep=False), np.zeros((), dtype))
    if finite is not None:
        rows, weights = finite
        if weights is not None:
            mask = writer("Where", inside, writer.reshape(weights.write(covered), [1, -1]), np.zeros((), dtype))
        result = writer("MatMul", mask, rows.write(covered))
    else:
        result = _reduce_masked(writer, bag, inside, content.write(covered))
    if bag.op == "ReduceMean":
        writer("Div", result, _divisors(writer, bag, (begin, end), inside))
    _finish(writer, bag, (begin, end))


def _reduce_masked(writer: Writer, bag: Bag, inside: str, rows: str) -> str:
    """Reduces rows of which each bag has its own: a product would make NaN of infinity in those that have it not."""
    is_most = bag.op == "ReduceMax"
    rest = np.array(-np.inf if is_most else 0, writer.dtype(bag.rows.content.typed))
    masked = writer("Where", writer.unsqueeze(inside, [2]), writer.unsqueeze(rows, [0]), rest)
    return writer.reduce("ReduceMax" if is_most else "ReduceSum", masked, [1], keep=False)


def _inside(writer: Writer, bag: Bag, begin: str, end: str) -> str:
    """Writes which rows are inside which bag, by the meaning of a Slice."""
    source, last = bag.rows.content.source, bag.rows.last
    if last is not None:
        end = writer("Concat", writer.slice(end, [0], [-1], [0]), writer("Shape", last.of), axis=0)
    size, zero, bounds = writer.size(source, 0), np.zeros(1, np.int64), list[str]()
    for bound in (begin, end):
        # What is negative counts from the end of the rows; beyond them there are none.
        from_front = writer("Where", writer("Less", bound, zero), writer("Add", bound, size), bound)
        bounds.append(writer.unsqueeze(from_front, [1]))
    places = _places(writer, source)
    return writer("And", writer("Not", writer("Less", places, bounds[0])), writer("Less", places, bounds[1]))


def _divisors(writer: Writer, bag: Bag, bounds: tuple[str, str], inside: str) -> str:
    """Writes what the mean of each bag divides by, as a column."""
    numbers = _number(writer, bag, bag.count, bounds, inside)
    if bag.last_count is None:
        return numbers
    last = _number(writer, bag, bag.last_count, bounds, inside)
    parts = writer.slice(numbers, [0], [-1], [0]), writer.slice(last, [-1], [TO_THE_END], [0])
    return writer("Concat", *parts, axis=0)


def _number(writer: Writer, bag: Bag, count: Count, bounds: tuple[str, str], inside: str) -> str:
    """Writes how many rows each bag has, as the loop counts them."""
    dtype, (begin, end) = writer.dtype(bag.rows.content.typed), bounds
    if count.end is None:
        # Half precision has not every number of rows, which a sum in it would need.
        number = writer.reduce("ReduceSum", writer.cast(inside, np.float32), [1])
    else:
        stop = writer("Shape", count.end.of) if isinstance(count.end, Length) else end
        number = writer.unsqueeze(writer("Sub", stop, begin), [1])
    number = writer.cast(number, dtype)
    return writer("Max", number, np.ones((), dtype)) if count.is_positive else number


def _finish(writer: Writer, bag: Bag, bounds: tuple[str, str]) -> None:
    """Makes what was written last the result, but zero for bags that end where they begin, if that is asked."""
    dtype, result = writer.dtype(bag.rows.content.typed), writer.nodes[-1].output[0]
    # Sums of no rows are zero, and so are they divided by one.
    is_sum = bag.op != "ReduceMax" and bag.rows.last is None
    if bag.empty_is_zero and not (is_sum and bag.count.is_positive and (bag.last_count or bag.count).is_positive):
        is_empty = writer.unsqueeze(writer("Equal", *bounds), [1])
        writer("Where", is_empty, np.zeros((), dtype), result)
    writer.nodes[-1].output[0] = writer.output()
