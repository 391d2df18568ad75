"""Combinations of sizes of dimensions that are not tied, run together: what is asked of several at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.shapes.lattice.number import distinct
from trtconv.shapes.lattice.result import Imposed
from trtconv.shapes.lattice.tables import Runner, Table
from trtconv.shapes.lattice.trial import Check
from trtconv.shapes.lattice.wording import combination, needs

_GRID = 16_384
"""Combinations up to this number are all tried."""
_SAMPLES = 4_096


@frozen
class Together:
    """What combinations tell: the rows that some accepted one has, and what is asked.

    Args:
        tables: The tables, with those rows.
        joint: Relations in words.
        imposed: Which nodes ask for what.
        exact: Whether every combination was tried.
        unknown: Nodes whose result is not known at them, and why.
        undecided: Positions of the tables whose other rows may be in a combination that was not tried.
    """

    tables: list[Table]
    joint: tuple[str, ...] = ()
    imposed: tuple[Imposed, ...] = ()
    exact: bool = True
    unknown: Mapping[str, str] = dataclasses.field(default_factory=dict)
    undecided: frozenset[int] = frozenset()


class Tried:
    """Combinations of rows of several tables, run: all where they are few, else random ones and lines.

    Args:
        runner: The network's shapes.
        tables: Their rows are valid by themselves.
        base: Sizes that are likely to be valid; the lines go through the valid combination nearest to it.
    """

    def __init__(self, runner: Runner, tables: Sequence[Table], base: Mapping[str, int]) -> None:
        self._runner = runner
        self.tables = tables
        self.bits = {name: i for i, table in enumerate(tables) for name in table.columns}
        counts = [table.rows for table in tables]
        self.whole = float(np.prod([float(n) for n in counts])) <= _GRID
        if self.whole:
            self._run([grid.ravel() for grid in np.meshgrid(*(np.arange(n) for n in counts), indexing="ij")])
            return
        middle = [table.nearest_row(base) for table in tables]
        self._run(_sampled(counts, middle))
        good = np.flatnonzero(self.good)
        if self.failing and len(good):
            away = sum(np.abs(self.rows[i][good] - row) for i, row in enumerate(middle))
            nearest = good[int(np.argmin(away))]
            self._run(_sampled(counts, [int(picks[nearest]) for picks in self.rows]))

    def _columns(self, rows: Sequence[Any]) -> dict[str, Any]:
        return {n: c[rows[i]] for i, table in enumerate(self.tables) for n, c in table.columns.items()}

    def _run(self, rows: Sequence[Any]) -> None:
        self.rows = rows
        self.columns = self._columns(rows)
        trial = self._runner.points(self.columns, self.bits)
        # Rows are valid by themselves, so that what fails is about several tables. Where a number of two dimensions is
        # one of them at all these sizes, its condition is about that one here, or about none.
        everything = (1 << len(self.tables)) - 1
        self.failing = [dataclasses.replace(c, mask=c.mask or everything) for c in trial.checks if not c.holds.all()]
        # A branch that depends on several sizes is known where one is held, and not on the grid.
        self.unknown = dict(trial.opaque)
        self.good = np.ones(len(rows[0]), dtype=bool)
        for check in self.failing:
            self.good &= check.holds

    def together(self, valid: Sequence[Table]) -> Together:
        """Narrows the tables to the rows that occur in some accepted combination, and says what ties them."""
        touched = [i for i in range(len(valid)) if any(check.mask >> i & 1 for check in self.failing)]
        rows = {i: distinct(self.rows[i][self.good]) for i in touched}
        narrowed = [self.tables[i].take(rows[i]) if i in rows else table for i, table in enumerate(valid)]
        if self._are_apart(rows):
            alone = tuple(self._alone(i, rows[i]) for i in touched)
            # With one size of all others, or none, nothing tells what is accepted beside other ones.
            open_to = [i for i in touched if all(len(rows[other]) <= 1 for other in touched if other != i)]
            undecided = frozenset() if self.whole else frozenset(open_to)
            return Together(narrowed, (), alone, self.whole, self.unknown, undecided)
        imposed = tuple(self._imposed())
        joint = tuple(dict.fromkeys(condition.needs for condition in imposed))
        undecided = frozenset() if self.whole else frozenset(touched)
        return Together(narrowed, joint, imposed, self.whole, self.unknown, undecided)

    def _are_apart(self, conditions: Mapping[int, Any]) -> bool:
        """Whether what looks like a relation is one condition on each dimension by itself."""
        apart = np.ones(len(self.good), dtype=bool)
        for i, rows in conditions.items():
            apart &= np.isin(self.rows[i], rows)
        if not np.array_equal(apart, self.good) or any(len(self.tables[i].columns) > 1 for i in conditions):
            return False
        if self.whole or not len(apart.nonzero()[0]):
            return True
        # Of what was tried by chance hardly any may be of sizes that are accepted each: these are tried.
        random = np.random.default_rng(1)
        picks = [
            random.choice(conditions.get(i, np.arange(table.rows)), _SAMPLES) for i, table in enumerate(self.tables)
        ]
        return all(check.holds.all() for check in self._runner.points(self._columns(picks), self.bits).checks)

    def _alone(self, index: int, good_rows: Any) -> Imposed:
        (name,) = self.tables[index].columns
        sizes = self.tables[index].columns[name]
        accepted = np.isin(np.arange(len(sizes)), good_rows)
        lost = ~np.isin(self.rows[index], good_rows)
        check = next(c for c in self.failing if c.mask >> index & 1)
        # The evidence is of a combination in which this dimension alone is wrong, where one was tried.
        for other, rows in enumerate(self.rows):
            if other != index and check.mask >> other & 1:
                only = lost & np.isin(rows, distinct(rows[self.good]))
                lost = only if (only & ~check.holds).any() else lost
        row = int(np.argmax(lost & ~check.holds))
        return self._cause(check, (name,), needs(sizes, accepted) if accepted.any() else "another size", row)

    def _imposed(self) -> list[Imposed]:
        causes, alive = [], np.ones(len(self.good), dtype=bool)
        for check in self.failing:
            names = tuple(name for name, bit in self.bits.items() if check.mask >> bit & 1)
            removed = alive & ~check.holds
            if removed.any():
                text = combination({name: self.columns[name] for name in names}, check.holds)
                causes.append(self._cause(check, names, text, int(np.argmax(removed))))
            alive &= check.holds
        return causes

    def _cause(self, check: Check, names: tuple[str, ...], asks: str, row: int) -> Imposed:
        involved = [name for name, bit in self.bits.items() if check.mask >> bit & 1]
        sizes = ", ".join(f"{name} {self.columns[name][row]}" for name in involved)
        return Imposed(names, asks, f"{check.evidence(row)} with {sizes}", check.node.location, check.node.source)


def _sampled(counts: Sequence[int], middle: Sequence[int]) -> list[Any]:
    """Returns random combinations of rows, every row of each table with the others at a middle, and the diagonal."""
    random = np.random.default_rng(0)
    picks: list[Any] = [random.integers(0, n, _SAMPLES) for n in counts]
    for axis, count in enumerate(counts):
        line = np.arange(count)
        for other in range(len(counts)):
            picks[other] = np.concatenate([picks[other], line if other == axis else np.full(count, middle[other])])
    # Sizes are often meant to be equal: the diagonal is tried as well.
    longest = max(counts)
    return [np.concatenate([picks[axis], np.minimum(np.arange(longest), n - 1)]) for axis, n in enumerate(counts)]
