"""The candidates: which sizes each free dimension may have, alone or tied to others; runs of a program over them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core import budget
from trtconv.core.dims import InputSpec
from trtconv.core.expressions import derived
from trtconv.core.findings import Location
from trtconv.core.frozen import frozen
from trtconv.shapes.lattice.number import Num, distinct
from trtconv.shapes.lattice.program import Program, Revision
from trtconv.shapes.lattice.tensor import Tensor
from trtconv.shapes.lattice.trial import Check, Trial

Vector = NDArray[np.int64]
MAX_ROWS = 65_536
"""Candidates of one table; longer ranges are looked at in part, and said to be."""


@frozen
class Table:
    """Sizes of one free dimension, or combinations of sizes of several that a node ties together.

    Args:
        columns: Dimension name to its size in every row.
        complete: Whether every size, or combination, that was asked about was looked at.
        sampled: Whether even single sizes were left out.
        judged: Then, the sizes of each dimension that were looked at with all their partners; none where left out.
    """

    columns: Mapping[str, Vector]
    complete: bool = True
    sampled: bool = False
    judged: Mapping[str, Vector] = dataclasses.field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of combinations."""
        return len(next(iter(self.columns.values())))

    def take(self, rows: Any) -> Table:
        """Returns some of the rows."""
        return dataclasses.replace(self, columns={name: column[rows] for name, column in self.columns.items()})

    def within(self, ranges: Mapping[str, tuple[int, int]]) -> NDArray[np.bool_]:
        """Tells which rows are inside the ranges that were asked about."""
        inside = np.ones(self.rows, dtype=bool)
        for name, column in self.columns.items():
            low, high = ranges[name]
            inside &= (column >= low) & (column <= high)
        return inside

    def nearest_row(self, sizes: Mapping[str, int]) -> int:
        """Returns the row nearest to some sizes."""
        distance = sum(np.abs(column - sizes[name]) for name, column in self.columns.items())
        return int(np.argmin(distance))


def symbols(inputs: Sequence[InputSpec], sizes: Mapping[str, Num]) -> dict[str, list[Num]]:
    """Returns the shape of every input for the sizes of the free dimensions."""
    names = {d for spec in inputs for d in spec.dims if isinstance(d, str)}
    expressions = derived(names)

    def size(dim: int | str) -> Num:
        if isinstance(dim, int):
            return Num(dim)
        if dim not in expressions:
            return sizes[dim]
        value = expressions[dim].evaluate(sizes)
        return value if isinstance(value, Num) else Num(value)

    cache = {name: size(name) for name in names}
    return {spec.name: [Num(d) if isinstance(d, int) else cache[d] for d in spec.dims] for spec in inputs}


@frozen
class Runner:
    """A program with the model's inputs.

    Args:
        program: The network's shapes.
        inputs: The inputs as the model declares them.
        values: Inputs whose elements are known.
    """

    program: Program
    inputs: Sequence[InputSpec]
    values: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)

    def lines(self, tables: Sequence[Table], base: Mapping[str, int]) -> tuple[Trial, list[slice]]:
        """Runs every table's rows, the dimensions of the others held at a base.

        Returns:
            The run, and the rows of it that belong to each table.
        """
        total = sum(table.rows for table in tables)
        names = [name for table in tables for name in table.columns]
        budget.spend(
            "candidates", total * len(names), "sizes of so many dimensions", Location(tensor=", ".join(names[:3]))
        )
        parts, sizes, start = [], {}, 0
        for bit, table in enumerate(tables):
            part = slice(start, start + table.rows)
            parts.append(part)
            start += table.rows
            for name, column in table.columns.items():
                vector = np.full(total, base[name], dtype=np.int64)
                vector[part] = column
                sizes[name] = Num(vector, 1 << bit)
        return self.program.run(total, symbols(self.inputs, sizes), self.values), parts

    @functools.cached_property
    def _still(self) -> Trial:
        """The run of a network of which nothing is free: it is the same each time."""
        return self.program.run(1, symbols(self.inputs, {}), self.values, keep=True)

    def points(
        self,
        columns: Mapping[str, Vector],
        bits: Mapping[str, int],
        *,
        rows: int | None = None,
        keep: bool = False,
        revise: Revision | None = None,
    ) -> Trial:
        """Runs combinations of sizes, each as it is."""
        if not columns and revise is None:
            return self._still.repeated(1 if rows is None else rows)
        rows = len(next(iter(columns.values()), np.ones(1))) if rows is None else rows
        sizes = {name: Num(column, 1 << bits[name]) for name, column in columns.items()}
        return self.program.run(rows, symbols(self.inputs, sizes), self.values, keep=keep, revise=revise)


def first_faults(checks: Sequence[Check], rows: int) -> list[Check | None]:
    """Returns for every candidate the first condition that it does not meet."""
    faults: list[Check | None] = [None] * rows
    for check in checks:
        for row in np.flatnonzero(~check.holds):
            if faults[row] is None:
                faults[row] = check
    return faults


def join(
    one: Table,
    two: Table,
    left: Vector,
    right: Vector,
    *,
    ones: bool,
    anchors: Mapping[str, Sequence[int]] | None = None,
) -> Table:
    """Returns the combinations of rows of two tables for which two sizes are equal.

    Args:
        one: The first table.
        two: The second one.
        left: A size in every row of the first.
        right: A size in every row of the second.
        ones: Whether a size of 1 fits any other.
        anchors: Sizes of which no combination is left out.
    """
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    starts, ends = np.searchsorted(ordered, left, "left"), np.searchsorted(ordered, left, "right")
    counts = ends - starts
    first = np.repeat(np.arange(one.rows), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    second = order[np.repeat(starts, counts) + within]
    complete, sampled = one.complete and two.complete, one.sampled or two.sampled
    if ones:
        anchor_rows = [_anchor_rows(table, anchors or {}) for table in (one, two)]
        for fits in ((left == 1, right != 1), (left != 1, right == 1)):
            pairs = _pairs(*fits, *anchor_rows)
            first, second = (np.concatenate(columns) for columns in zip((first, second), pairs, strict=True))
    # A size is refused for want of a partner only where all possible partners were looked at.
    judged = {**({} if two.sampled else one.judged), **({} if one.sampled else two.judged)}
    if len(first) > MAX_ROWS:
        columns = {**one.take(first).columns, **two.take(second).columns}
        rows = _thinned(columns, first, second, anchors or {})
        first, second, complete = first[rows], second[rows], False
    return Table({**one.take(first).columns, **two.take(second).columns}, complete, sampled, judged)


def _thinned(
    columns: Mapping[str, Vector], first: Vector, second: Vector, anchors: Mapping[str, Sequence[int]]
) -> Vector:
    """Returns some of too many rows: those that were asked for, and every size with at least one partner."""
    anchor_rows = _anchor_rows(Table(columns), anchors)
    some = np.linspace(0, len(first) - 1, MAX_ROWS).astype(np.int64)
    return distinct(np.concatenate([some, np.flatnonzero(anchor_rows), _firsts(first), _firsts(second)]))


def _firsts(values: Vector) -> Vector:
    """Returns where each value is first."""
    order = np.argsort(values, kind="stable")
    new = np.diff(values[order], prepend=values[order[0]] - 1) != 0
    rows: Vector = order[new]
    return rows


def _anchor_rows(table: Table, anchors: Mapping[str, Sequence[int]]) -> NDArray[np.bool_]:
    """Tells which rows have only sizes that were asked for."""
    rows = np.ones(table.rows, dtype=bool)
    for name, column in table.columns.items():
        rows &= np.isin(column, np.array(anchors.get(name, ()), np.int64))
    return rows


def _pairs(
    ones: NDArray[np.bool_], others: NDArray[np.bool_], anchors: NDArray[np.bool_], also: NDArray[np.bool_]
) -> tuple[Vector, Vector]:
    """Returns rows of two tables, each with each; of more than a table has, those asked for and one of each row."""
    one, two = np.flatnonzero(ones), np.flatnonzero(others)
    if len(one) * len(two) <= 4 * MAX_ROWS:
        return (np.repeat(one, len(two)), np.tile(two, len(one)))
    longest = np.arange(max(len(one), len(two)))
    some, more = np.flatnonzero(ones & anchors), np.flatnonzero(others & also)
    # One more than a table may have: the rest of them is left out, and said to be.
    even = np.linspace(0, len(one) * len(two) - 1, MAX_ROWS + 1).astype(np.int64)
    firsts = np.concatenate([one[even // len(two)], one[longest % len(one)], np.repeat(some, len(more))])
    seconds = np.concatenate([two[even % len(two)], two[longest % len(two)], np.tile(more, len(some))])
    order = np.lexsort((seconds, firsts))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(firsts[order]) != 0) | (np.diff(seconds[order]) != 0)
    return (firsts[order][new], seconds[order][new])
