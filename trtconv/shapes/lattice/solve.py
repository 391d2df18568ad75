"""Finds the sizes that a network accepts.

Every free dimension is a table of candidate sizes. One run of the program tells for each condition which dimensions it
depends on. A condition on one table is decided for all its rows at once, whatever the other dimensions are. A condition
that two sizes of different tables are equal joins the tables (all pairs for which it holds), and the program is run
again. What then still depends on several tables is decided on their whole grid where that is small, else tried at some
thousand combinations, and said to be.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.expressions import Expression, derived
from trtconv.core.frozen import frozen
from trtconv.shapes.lattice.number import distinct
from trtconv.shapes.lattice.result import DimLattice, Imposed, SizeLattice
from trtconv.shapes.lattice.stretch import Pattern, candidates, pattern_of, run_with, turning
from trtconv.shapes.lattice.tables import Runner, Table, Vector, join
from trtconv.shapes.lattice.trial import Check, Trial
from trtconv.shapes.lattice.wording import combination, needs, needs_in_part, relation, step_and_offset

_MARGIN = 512
"""How far beyond the asked range valid sizes are looked for, to have the nearest ones."""
_MARGINS = 8_192
"""The same of all dimensions together: each is run at the candidates of all others, which is quadratic in their number
where the candidates are not fewer."""
_LEAST_MARGIN = 16
_GRID = 16_384
"""Combinations up to this number are all tried."""
_SAMPLES = 4_096

_ROUNDS = 8
"""How often a turn in a long range is looked at closer; each time 64 times so."""

Spans = Mapping[str, tuple[int, int]]
"""Dimension name to smallest and largest size that is asked about."""


def solve(
    runner: Runner,
    spans: Spans,
    base: Mapping[str, int] | None = None,
    also: Mapping[str, Collection[int]] | None = None,
) -> SizeLattice:
    """Finds the sizes that a network accepts.

    Args:
        runner: The network's shapes.
        spans: The free dimensions and their ranges.
        base: Sizes that are likely to be valid, such as those to optimize for.
        also: Further sizes that the answer must be right about, however long the range is.
    """
    start = {name: (base or {}).get(name, (low + high) // 2) for name, (low, high) in spans.items()}
    asked = {name: sorted({*span, start[name], *(also or {}).get(name, ())}) for name, span in spans.items()}
    margin = max(_LEAST_MARGIN, min(_MARGIN, _MARGINS // max(1, len(spans))))
    tables = [_table(name, span, asked[name], margin) for name, span in spans.items()]
    rounds = _ROUNDS
    while True:
        trial, parts = runner.lines(tables, start) if tables else (_fixed(runner), [])
        closer = _closer(tables, trial, parts) if rounds else None
        if closer is not None:
            tables, rounds = closer, rounds - 1
            continue
        accepted = [_accepted(trial, bit, part) for bit, part in enumerate(parts)]
        tie = _first_tie(trial)
        if tie is None:
            break
        tables = _joined(tables, accepted, tie, parts, asked)
    return _Answer(runner, spans, start, tables, trial, parts, accepted).lattice()


def _fixed(runner: Runner) -> Trial:
    return runner.points({}, {})


def _table(name: str, span: tuple[int, int], asked: Collection[int], margin: int) -> Table:
    first, last = max(1, span[0] - margin), span[1] + margin
    sizes = candidates(first, last, asked)
    complete = len(sizes) == last - first + 1
    return Table({name: sizes}) if complete else Table({name: sizes}, False, True, {name: sizes})


def _closer(tables: Sequence[Table], trial: Trial, parts: Sequence[slice]) -> list[Table] | None:
    """Returns the tables with more sizes where long ones turn; None where there are none."""
    found, more = [], False
    for bit, (table, part) in enumerate(zip(tables, parts, strict=True)):
        sizes = None
        if table.sampled and len(table.columns) == 1:
            (name,) = table.columns
            sizes = turning(trial.checks, 1 << bit, part, table.columns[name])
        found.append(table if sizes is None else Table({name: sizes}, False, True, {name: sizes}))
        more |= sizes is not None
    return found if more else None


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
    tables: Sequence[Table],
    accepted: Sequence[NDArray[np.bool_]],
    tie: Check,
    parts: Sequence[slice],
    asked: Mapping[str, Sequence[int]],
) -> list[Table]:
    bits = [mask.bit_length() - 1 for mask in (tie.left.mask, tie.right.mask)]
    one, two = (tables[bit].take(accepted[bit]) for bit in bits)
    left, right = (
        np.asarray(num.value)[parts[bit]][accepted[bit]] for num, bit in zip((tie.left, tie.right), bits, strict=True)
    )
    merged = join(one, two, left, right, ones=tie.ones, asked=asked)
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
        patterns = self._patterns(valid, together.tables)
        valid = together.tables
        tied = [table for table in valid if len(table.columns) > 1 and table.rows]
        inside = [table.take(table.within(self.spans)) for table in tied]
        joint = [said for table in inside if table.rows for said in relation(table.columns, complete=table.complete)]
        return SizeLattice(
            dims=self._dims(valid, patterns),
            joint=tuple(dict.fromkeys([*joint, *together.joint])),
            imposed=(*self._imposed(), *together.imposed),
            unknown=dict(self.trial.opaque),
            data_dependent=tuple(node.location for node in self.trial.data_dependent),
            exact=together.exact and not self.trial.opaque and all(table.complete for table in self.tables),
            tables=tuple(_filled(table, patterns) for table in valid),
        )

    def _patterns(self, valid: Sequence[Table], narrowed: Sequence[Table]) -> dict[str, Pattern]:
        """Finds what goes on between the sizes of long ranges that were run."""
        found = {}
        for bit, table in enumerate(self.tables):
            # What depends on other dimensions as well was not found by size alone.
            if not table.sampled or len(table.columns) > 1 or valid[bit].rows != narrowed[bit].rows:
                continue
            (name,) = table.columns
            pattern = pattern_of(table.columns[name], self.accepted[bit], functools.partial(self._try, bit, name))
            if pattern is not None:
                found[name] = pattern
        return found

    def _try(self, bit: int, name: str, sizes: Vector) -> NDArray[np.bool_]:
        """Runs further sizes of a dimension, the others at their base."""
        bits = {each: number for number, table in enumerate(self.tables) for each in table.columns}
        columns = {each: np.full(len(sizes), self.base[each], dtype=np.int64) for each in bits}
        trial = self.runner.points({**columns, name: sizes}, bits)
        return _accepted(trial, bit, slice(0, len(sizes)))

    def _dims(self, valid: Sequence[Table], patterns: Mapping[str, Pattern]) -> dict[str, DimLattice]:
        # Of tied dimensions a size counts where its partners are in range as well.
        tables = {name: (each, each.take(each.within(self.spans))) for each in valid for name in each.columns}
        dims = {}
        for name, span in self.spans.items():
            table, inside = tables[name]
            if name in patterns:
                dims[name] = _long_dim(name, span, patterns[name], distinct(table.columns[name]))
                continue
            looked = tuple(table.judged.get(name, np.zeros(0, np.int64)).tolist()) if table.sampled else None
            around, within = (tuple(distinct(each.columns[name]).tolist()) for each in (table, inside))
            dims[name] = _dim(name, span, around, within, looked)
        names = {d for spec in self.runner.inputs for d in spec.dims if isinstance(d, str)}
        for name, expression in derived(names).items():
            if len(expression.symbols) == 1:
                dims[name] = _computed(expression, self.spans[expression.symbols[0]], dims[expression.symbols[0]])
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
            column, holds = table.columns[names[0]][above], check.holds[part][above]
            if not table.sampled:
                asks = needs(column, holds, high)
            else:
                asks = needs_in_part(column, holds, run_with(column, int(table.columns[names[0]][row])))
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


def _filled(table: Table, patterns: Mapping[str, Pattern]) -> Table:
    """Adds sizes between those of a long range that were run, so that none of it is far from one."""
    (name, column), *others = table.columns.items()
    if others or name not in patterns:
        return table
    return dataclasses.replace(table, columns={name: distinct(np.concatenate([column, patterns[name].some()]))})


def _dim(
    name: str,
    span: tuple[int, int],
    around: Sequence[int],
    inside: Sequence[int] | None = None,
    looked: tuple[int, ...] | None = None,
) -> DimLattice:
    low, high = span
    if inside is None:
        inside = around[bisect.bisect_left(around, low) : bisect.bisect_right(around, high)]
    step, offset = step_and_offset(np.array(inside, dtype=np.int64))
    valid = None if len(inside) == high - low + 1 else tuple(inside)
    return DimLattice(name, low, high, step, offset, valid, around, looked)


def _long_dim(name: str, span: tuple[int, int], pattern: Pattern, run: Vector) -> DimLattice:
    sizes = pattern.sizes()
    if sizes is not None:
        return _dim(name, span, sizes)
    some = tuple(distinct(np.concatenate([run, pattern.some()])).tolist())
    found = _dim(name, span, some, None, tuple(run.tolist()))
    if pattern.everything(*span):
        return dataclasses.replace(found, step=1, offset=0, valid=None)
    return found


def _computed(expression: Expression, span: tuple[int, int], symbol: DimLattice) -> DimLattice:
    """Returns the sizes of a dimension that is computed from one other."""

    def computed(sizes: Sequence[int]) -> tuple[int, ...]:
        values = np.broadcast_to(expression.evaluate({symbol.name: np.array(sizes, dtype=np.int64)}), len(sizes))
        return tuple(distinct(values).tolist())

    ends = sorted(int(expression.evaluate({symbol.name: n})) for n in span)
    looked = None if symbol.looked is None else computed(symbol.looked)
    return _dim(expression.text, (ends[0], ends[1]), computed(symbol.around), None, looked)
