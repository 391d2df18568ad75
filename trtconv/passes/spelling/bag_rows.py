"""What a loop over bags of rows makes in a step, and how the rows of all steps are written at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.passes.spelling.offsets import capped, magnitude, row_count
from trtconv.passes.spelling.writer import Unwritable, Writer


@frozen
class Offset:
    """An entry of a list of offsets: the one at the number of the step, and `ahead` more.

    Args:
        offsets: The list.
        ahead: How many more.
        part: The list that the loop reads, which is the end of the other one.
        ahead_there: How many more than the number of the step that is in it.
    """

    offsets: str
    ahead: int
    part: str = dataclasses.field(compare=False)
    ahead_there: int = dataclasses.field(compare=False)


@frozen
class Length:
    """The length of a list of the graph around the loop."""

    of: str


@frozen
class RowContent:
    """What a tensor of the body has a part of in each step, and the nodes that make all of it.

    Args:
        terms: Says what they are: rows with the same terms are the same.
        source: The tensor of the graph around the loop that is cut first, along axis 0.
        typed: A tensor of their type.
        rank: How many axes they have.
        magnitude: Returns what no element of any row exceeds, as `offsets.magnitude`.
        write: Writes them, given the tensor that tells of each row whether a bag has it; "" where a bag has each.
        looks_up: Whether `write` reads that tensor.
        is_column: Whether they are single numbers, in a column.
        factors: Two that they are the product of, if they are one.
    """

    terms: tuple[object, ...]
    source: str
    typed: str
    rank: int
    magnitude: Callable[[], float] = dataclasses.field(compare=False)
    write: Callable[[str], str] = dataclasses.field(compare=False)
    looks_up: bool = False
    is_column: bool = False
    factors: tuple[RowContent, RowContent] | None = dataclasses.field(default=None, compare=False)

    def finite(self) -> tuple[RowContent, RowContent | None] | None:
        """Returns rows without infinity or NaN, and a column of weights, if any, that these are a product of."""
        if np.isfinite(self.magnitude()):
            return self, None
        for rows, weights in (self.factors, self.factors[::-1]) if self.factors else ():
            if weights.is_column and rows.rank == self.rank and np.isfinite(rows.magnitude()):
                return rows, weights
        return None


def cut(writer: Writer, source: str) -> RowContent:
    """Returns rows that are cut out of a tensor of the graph around the loop."""
    scope, shape, factors = writer.scope, writer.shape(source), None
    node = scope.producer(source)
    while node is not None and node.op_type == "Identity":
        node = scope.producer(node.input[0])
    if node is not None and node.op_type == "Mul" and len({row_count(scope, factor) for factor in node.input}) == 1:
        factors = (cut(writer, node.input[0]), cut(writer, node.input[1]))
    return RowContent(
        (source,),
        source=source,
        typed=source,
        rank=len(shape),
        magnitude=lambda: magnitude(scope, source),
        write=lambda covered: source,
        is_column=shape[1:] == (1,),
        factors=factors,
    )


def looked_up(writer: Writer, table: str, numbers: RowContent) -> RowContent:
    """Returns rows of a table, whose numbers may be no row's where no bag has them: the loop does not look these up."""

    def write(covered: str) -> str:
        places = numbers.write(covered)
        if covered:
            reads = writer.unsqueeze(covered, range(1, numbers.rank)) if numbers.rank > 1 else covered
            places = writer("Where", reads, places, np.zeros((), writer.dtype(numbers.typed)))
        return writer("Gather", table, places, axis=0)

    rank = numbers.rank + len(writer.shape(table)) - 1
    terms = ("Gather", table, numbers.terms)
    return RowContent(terms, numbers.source, table, rank, lambda: magnitude(writer.scope, table), write, looks_up=True)


def widened(writer: Writer, rows: RowContent, axes: list[int]) -> RowContent:
    """Returns rows with more axes of size 1."""
    return dataclasses.replace(
        rows,
        terms=("Unsqueeze", *axes, rows.terms),
        rank=rows.rank + len(axes),
        is_column=rows.rank == 1 and axes == [1],
        factors=None,
        write=lambda covered: writer.unsqueeze(rows.write(covered), axes),
    )


def product(writer: Writer, rows: RowContent, others: RowContent) -> RowContent:
    """Returns rows times others of as many."""
    return dataclasses.replace(
        rows,
        terms=("Mul", rows.terms, others.terms),
        magnitude=lambda: capped(rows.magnitude() * others.magnitude()),
        write=lambda covered: writer("Mul", rows.write(covered), others.write(covered)),
        looks_up=rows.looks_up or others.looks_up,
        is_column=rows.is_column and others.is_column,
        factors=(rows, others),
    )


@frozen
class BagRows:
    """Rows of a tensor, from one entry to another.

    Args:
        begin: Where they begin.
        end: Where they end; the length of a list where only the last step's are meant.
        content: What they are.
        last: Where those of the last step end, if elsewhere.
    """

    begin: Offset
    end: Offset | Length
    content: RowContent
    last: Length | None = None

    def until(self, last: BagRows) -> BagRows:
        """Returns these rows with the end that those of the last step have, which are otherwise the same."""
        if (last.content, last.begin) != (self.content, self.begin) or last.last is not None or self.last is not None:
            raise Unwritable
        if last.end == self.end:
            return self
        if not isinstance(last.end, Length):
            raise Unwritable
        return dataclasses.replace(self, last=last.end)

    def times(self, writer: Writer, others: BagRows) -> BagRows:
        """Returns these rows times others.

        Where tensors are of two lengths, the same offsets may cut out of one what they do not of the other.
        """
        bounds = (others.begin, others.end, others.last, others.content.rank)
        is_same = bounds == (self.begin, self.end, self.last, self.content.rank)
        counts = {row_count(writer.scope, rows.content.source) for rows in (self, others)}
        if not is_same or len(counts) > 1:
            raise Unwritable
        return dataclasses.replace(self, content=product(writer, self.content, others.content))


@frozen
class Count:
    """How many rows a mean divides by.

    Args:
        end: Where they end by the body's own subtraction of where they begin, which is by the offsets as they are;
            None where the operator counts those that were cut out.
        is_positive: Whether none are counted as one: ONNX Runtime's mean of nothing is zero.
    """

    end: Offset | Length | None = None
    is_positive: bool = True


@frozen
class Bag:
    """What a step makes.

    Args:
        op: The reduction.
        rows: What it reduces, along axis 0.
        keeps: Whether the axis stays, with a size of 1.
        empty_is_zero: Whether a bag that ends where it begins is zero; otherwise it is what the operator makes of it.
        count: What a mean divides by.
        last_count: What it divides by in the last step, if by something else.
    """

    op: str
    rows: BagRows
    keeps: bool
    empty_is_zero: bool = False
    count: Count = Count()
    last_count: Count | None = None

    def until(self, last: Bag) -> Bag:
        """Returns this bag with what that of the last step has, which is otherwise the same."""
        rows = self.rows.until(last.rows)
        if dataclasses.replace(self, rows=last.rows, count=last.count) != last or self.last_count is not None:
            raise Unwritable
        return dataclasses.replace(self, rows=rows, last_count=None if last.count == self.count else last.count)
