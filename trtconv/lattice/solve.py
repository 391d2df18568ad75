"""Finds the sizes that a network accepts.

Every free dimension is a table of candidate sizes. One run of the program tells for each condition which dimensions it
depends on. A condition on one table is decided for all its rows at once, whatever the other dimensions are. A condition
that two sizes of different tables are equal joins the tables (all pairs for which it holds), and the program is run
again. What then still depends on several tables is decided on their whole grid where that is small, else tried at some
thousand combinations, and said to be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.expressions import derived
from trtconv.frozen import frozen
from trtconv.lattice.number import distinct
from trtconv.lattice.result import DimLattice, Imposed, SizeLattice, sizes_of
from trtconv.lattice.tables import MAX_ROWS, Runner, Table, Vector, join
from trtconv.lattice.trial import Check, Trial
from trtconv.lattice.wording import combination, needs, relation, step_and_offset

_MARGIN = 512
"""How far beyond the asked range valid sizes are looked for, to have the nearest ones."""
_GRID = 16_384
"""Combinations up to this number are all tried."""
_SAMPLES = 4_096

Spans = Mapping[str, tuple[int, int]]
"""Dimension name to smallest and largest size that is asked about."""


def solve(runner: Runner, spans: Spans, base: Mapping[str, int] | None = None) -> SizeLattice:
    """Finds the sizes that a network accepts.

    Args:
        runner: The network's shapes.
        spans: The free dimensions and their ranges.
        base: Sizes that are likely to be valid, such as those to optimize for.
    """
    start = {name: (base or {}).get(name, (low + high) // 2) for name, (low, high) in spans.items()}
    tables = [Table({name: candidates(low, high)}, high - low < MAX_ROWS) for name, (low, high) in spans.items()]
    while True:
        trial, parts = runner.lines(tables, start) if tables else (_fixed(runner), [])
        accepted = [_accepted(trial, bit, part) for bit, part in enumerate(parts)]
        tie = _first_tie(trial)
        if tie is None:
            break
        tables = _joined(tables, accepted, tie, parts)
    return _Answer(runner, spans, start, tables, trial, parts, accepted).lattice()


def _fixed(runner: Runner) -> Trial:
    return runner.points({}, {})


def candidates(low: int, high: int) -> Vector:
    """Returns the sizes to look at: the range and a margin on both sides, thinned to its ends where it is very long."""
    first, last = max(1, low - _MARGIN), high + _MARGIN
    if last - first < MAX_ROWS:
        return np.arange(first, last + 1, dtype=np.int64)
    half = MAX_ROWS // 2
    return np.concatenate([np.arange(first, first + half), np.arange(last - half, last + 1)]).astype(np.int64)


def _accepted(trial: Trial, bit: int, part: slice) -> NDArray[np.bool_]:
    """Returns which rows of a table meet all conditions that are about it alone, or about nothing."""
    accepted = np.ones(part.stop - part.start, dtype=bool)
    for check in trial.checks:
        if check.mask in (0, 1 << bit):
            accepted &= check.holds[part]
    return accepted


def _first_tie(trial: Trial) -> Check | None:
    """Returns the first condition that two sizes, each of one table, are equal."""
    for check in trial.checks:
        masks = check.left.mask, check.right.mask
        if check.ties and all(mask.bit_count() == 1 for mask in masks) and masks[0] != masks[1]:
            return check
    return None


def _joined(
    tables: Sequence[Table], accepted: Sequence[NDArray[np.bool_]], tie: Check, parts: Sequence[slice]
) -> list[Table]:
    bits = [mask.bit_length() - 1 for mask in (tie.left.mask, tie.right.mask)]
    one, two = (tables[bit].take(accepted[bit]) for bit in bits)
    left, right = (
        np.asarray(num.value)[parts[bit]][accepted[bit]] for num, bit in zip((tie.left, tie.right), bits, strict=True)
    )
    merged = join(one, two, left, right, ones=tie.ones)
    return [table for bit, table in enumerate(tables) if bit not in bits] + [merged]


@dataclasses.dataclass
class _Answer:
    """Puts the answer together from the last run."""

    runner: Runner
    spans: Spans
    base: Mapping[str, int]
    tables: Sequence[Table]
    trial: Trial
    parts: Sequence[slice]
    accepted: Sequence[NDArray[np.bool_]]

    def lattice(self) -> SizeLattice:
        valid = [table.take(rows) for table, rows in zip(self.tables, self.accepted, strict=True)]
        together = self._together(valid)
        valid = together.tables
        tied = [table for table in valid if len(table.columns) > 1 and table.rows]
        inside = [table.take(table.within(self.spans)) for table in tied]
        joint = [said for table in inside if table.rows for said in relation(table.columns)]
        return SizeLattice(
            dims=self._dims(valid),
            joint=tuple(dict.fromkeys([*joint, *together.joint])),
            imposed=(*self._imposed(), *together.imposed),
            unknown=dict(self.trial.opaque),
            data_dependent=tuple(node.location for node in self.trial.data_dependent),
            exact=together.exact and not self.trial.opaque and all(table.complete for table in self.tables),
            tables=tuple(valid),
        )

    def _dims(self, valid: Sequence[Table]) -> dict[str, DimLattice]:
        # Of tied dimensions a size counts where its partners are in range as well.
        inside = [table.take(table.within(self.spans)) for table in valid]
        dims = {
            name: _dim(name, span, sizes_of(valid, name), sizes_of(inside, name)) for name, span in self.spans.items()
        }
        names = {d for spec in self.runner.inputs for d in spec.dims if isinstance(d, str)}
        for name, expression in derived(names).items():
            if len(expression.symbols) == 1:
                symbol = expression.symbols[0]
                ends = sorted(int(expression.evaluate({symbol: n})) for n in self.spans[symbol])
                sizes = distinct(np.asarray(expression.evaluate({symbol: sizes_of(valid, symbol)}), dtype=np.int64))
                dims[name] = _dim(name, (ends[0], ends[1]), sizes)
        return dims

    def _imposed(self) -> list[Imposed]:
        """Lists the nodes that rule out sizes, each with those that no node before it rules out."""
        found: dict[tuple[str, tuple[str, ...]], Imposed] = {}
        for bit, (table, part) in enumerate(zip(self.tables, self.parts, strict=True)):
            inside = table.within(self.spans)
            alive = inside.copy()
            for check in self.trial.checks:
                if check.mask not in (0, 1 << bit):
                    continue
                holds = check.holds[part]
                removed = alive & ~holds
                if removed.any():
                    made = self._made(table, check, part, removed)
                    found.setdefault((check.node.label, made.dims), made)
                    alive &= holds
        return list(found.values())

    def _made(self, table: Table, check: Check, part: slice, removed: NDArray[np.bool_]) -> Imposed:
        names = tuple(table.columns)
        # The row to show: the one nearest to what was asked for among those that are ruled out.
        rows = np.flatnonzero(removed)
        row = int(rows[table.take(rows).nearest_row(self.base)])
        sizes = ", ".join(f"{name} {column[row]}" for name, column in table.columns.items())
        if len(names) == 1:
            # Below the range other rules may hold: a size of 1 broadcasts, small ones do not fill a window.
            low, high = self.spans[names[0]]
            above = table.columns[names[0]] >= low
            asks = needs(table.columns[names[0]][above], check.holds[part][above], high)
        else:
            asks = combination(table.columns, check.holds[part])
        evidence = f"{check.evidence(part.start + row)} with {sizes}"
        return Imposed(names, asks, evidence, check.node.location, check.node.source)

    def _together(self, valid: Sequence[Table]) -> _Together:
        """Decides the conditions that depend on several tables."""
        if not self.trial.compared or len(valid) < 2 or not all(table.rows for table in valid):
            return _Together(list(valid))
        inside = [table.take(table.within(self.spans)) for table in valid]
        if not all(table.rows for table in inside):
            return _Together(list(valid))
        tried = _Tried(self.runner, inside, self.base)
        if not tried.failing:
            return _Together(list(valid), exact=tried.whole)
        return tried.together(valid)


@frozen
class _Together:
    tables: list[Table]
    joint: tuple[str, ...] = ()
    imposed: tuple[Imposed, ...] = ()
    exact: bool = True


class _Tried:
    """Combinations of rows of several tables, run: all where they are few, else random ones and lines.

    Args:
        runner: The network's shapes.
        tables: Their rows are valid by themselves.
        base: Sizes that are likely to be valid; the lines go through the valid combination nearest to it.
    """

    def __init__(self, runner: Runner, tables: Sequence[Table], base: Mapping[str, int]) -> None:
        self.tables = tables
        self.bits = {name: i for i, table in enumerate(tables) for name in table.columns}
        counts = [table.rows for table in tables]
        self.whole = float(np.prod([float(n) for n in counts])) <= _GRID
        if self.whole:
            self._run(runner, [grid.ravel() for grid in np.meshgrid(*(np.arange(n) for n in counts), indexing="ij")])
            return
        middle = [table.nearest_row(base) for table in tables]
        self._run(runner, _sampled(counts, middle))
        good = np.flatnonzero(self.good)
        if self.failing and len(good):
            away = sum(np.abs(self.rows[i][good] - row) for i, row in enumerate(middle))
            nearest = good[int(np.argmin(away))]
            self._run(runner, _sampled(counts, [int(picks[nearest]) for picks in self.rows]))

    def _run(self, runner: Runner, rows: Sequence[Any]) -> None:
        self.rows = rows
        self.columns = {n: c[rows[i]] for i, table in enumerate(self.tables) for n, c in table.columns.items()}
        trial = runner.points(self.columns, self.bits)
        self.failing = [c for c in trial.checks if c.mask & (c.mask - 1) and not c.holds.all()]
        self.good = np.ones(len(rows[0]), dtype=bool)
        for check in self.failing:
            self.good &= check.holds

    def together(self, valid: Sequence[Table]) -> _Together:
        """Narrows the tables to the rows that occur in some accepted combination, and says what ties them."""
        touched = [i for i in range(len(valid)) if any(check.mask >> i & 1 for check in self.failing)]
        kept = {i: distinct(self.rows[i][self.good]) for i in touched}
        narrowed = [self.tables[i].take(kept[i]) if i in kept else table for i, table in enumerate(valid)]
        apart = np.ones(len(self.good), dtype=bool)
        for i in touched:
            apart &= np.isin(self.rows[i], kept[i])
        if np.array_equal(apart, self.good) and all(len(self.tables[i].columns) == 1 for i in touched):
            # What looks like a relation is one condition on each dimension by itself.
            return _Together(narrowed, (), tuple(self._alone(i, kept[i]) for i in touched), self.whole)
        imposed = tuple(self._imposed())
        return _Together(narrowed, tuple(dict.fromkeys(i.needs for i in imposed)), imposed, self.whole)

    def _alone(self, index: int, kept: Any) -> Imposed:
        (name,) = self.tables[index].columns
        sizes = self.tables[index].columns[name]
        accepted = np.isin(np.arange(len(sizes)), kept)
        lost = ~np.isin(self.rows[index], kept)
        check = next(c for c in self.failing if c.mask >> index & 1)
        # The evidence is of a combination in which this dimension alone is wrong, where one was tried.
        for other, rows in enumerate(self.rows):
            if other != index and check.mask >> other & 1:
                only = lost & np.isin(rows, distinct(rows[self.good]))
                lost = only if (only & ~check.holds).any() else lost
        row = int(np.argmax(lost & ~check.holds))
        return self._made(check, (name,), needs(sizes, accepted) if accepted.any() else "another size", row)

    def _imposed(self) -> list[Imposed]:
        found, alive = [], np.ones(len(self.good), dtype=bool)
        for check in self.failing:
            names = tuple(name for name, bit in self.bits.items() if check.mask >> bit & 1)
            removed = alive & ~check.holds
            if removed.any():
                said = combination({name: self.columns[name] for name in names}, check.holds)
                found.append(self._made(check, names, said, int(np.argmax(removed))))
            alive &= check.holds
        return found

    def _made(self, check: Check, names: tuple[str, ...], asks: str, row: int) -> Imposed:
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


def _dim(name: str, span: tuple[int, int], around: Vector, inside: Vector | None = None) -> DimLattice:
    low, high = span
    if inside is None:
        inside = around[(around >= low) & (around <= high)]
    step, offset = step_and_offset(inside if len(inside) > 1 else around)
    everything = len(inside) == high - low + 1 or (high - low >= MAX_ROWS and step == 1)
    valid = None if everything else tuple(inside.tolist())
    return DimLattice(name, low, high, step, offset, valid, tuple(around.tolist()))
