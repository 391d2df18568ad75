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
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.core.expressions import Expression, derived
from trtconv.shapes.lattice.number import distinct
from trtconv.shapes.lattice.result import DimLattice, Imposed, SizeLattice
from trtconv.shapes.lattice.stretch import Pattern, candidates, pattern_of, run_with, turning
from trtconv.shapes.lattice.tables import Runner, Table, Vector, join
from trtconv.shapes.lattice.together import Together, Tried
from trtconv.shapes.lattice.trial import Check, Trial
from trtconv.shapes.lattice.wording import combination, needs, needs_in_part, relation, step_and_offset

_MARGIN = 512
"""How far beyond the asked range valid sizes are looked for, to have the nearest ones."""
_MARGINS = 8_192
"""The same of all dimensions together: each is run at the candidates of all others, which is quadratic in their number
where the candidates are not fewer."""
_LEAST_MARGIN = 16

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
    anchors = {name: sorted({*span, start[name], *(also or {}).get(name, ())}) for name, span in spans.items()}
    margin = max(_LEAST_MARGIN, min(_MARGIN, _MARGINS // max(1, len(spans))))
    tables = [_table(name, span, anchors[name], margin) for name, span in spans.items()]
    rounds = _ROUNDS
    while True:
        trial, parts = runner.lines(tables, start) if tables else (runner.points({}, {}), [])
        closer = _closer(tables, trial, parts) if rounds else None
        if closer is not None:
            tables, rounds = closer, rounds - 1
            continue
        accepted = [_accepted(trial, bit, part) for bit, part in enumerate(parts)]
        tie = _first_tie(trial)
        if tie is None:
            break
        joined = _joined(tables, accepted, tie, parts, anchors)
        if not joined[-1].rows:
            break  # No two sizes fit: which node says so is told from combinations that do not.
        tables = joined
    return _Answer(runner, spans, start, tables, trial, parts, accepted).lattice()


def _table(name: str, span: tuple[int, int], anchors: Collection[int], margin: int) -> Table:
    first, last = max(1, span[0] - margin), span[1] + margin
    sizes = candidates(first, last, anchors)
    complete = len(sizes) == last - first + 1
    return Table({name: sizes}) if complete else Table({name: sizes}, False, True, {name: sizes})


def _closer(tables: Sequence[Table], trial: Trial, parts: Sequence[slice]) -> list[Table] | None:
    """Returns the tables with more sizes where long ones turn; None where there are none."""
    closer, more = [], False
    for bit, (table, part) in enumerate(zip(tables, parts, strict=True)):
        sizes = None
        if table.sampled and len(table.columns) == 1:
            (name,) = table.columns
            sizes = turning(trial.checks, 1 << bit, part, table.columns[name])
        closer.append(table if sizes is None else Table({name: sizes}, False, True, {name: sizes}))
        more |= sizes is not None
    return closer if more else None


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
    anchors: Mapping[str, Sequence[int]],
) -> list[Table]:
    bits = [mask.bit_length() - 1 for mask in (tie.left.mask, tie.right.mask)]
    one, two = (tables[bit].take(accepted[bit]) for bit in bits)
    left, right = (
        np.asarray(num.value)[parts[bit]][accepted[bit]] for num, bit in zip((tie.left, tie.right), bits, strict=True)
    )
    merged = join(one, two, left, right, ones=tie.ones, anchors=anchors)
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
        valid = [
            self._in_part(bit, table) if bit in together.undecided else table
            for bit, table in enumerate(together.tables)
        ]
        tied = [table for table in valid if len(table.columns) > 1 and table.rows]
        inside = [table.take(table.within(self.spans)) for table in tied]
        # Where every combination in range is accepted, nothing ties them there.
        counts = [
            math.prod(self.spans[name][1] - self.spans[name][0] + 1 for name in inner.columns) for inner in inside
        ]
        bound = [
            inner if inner.rows else table
            for table, inner, most in zip(tied, inside, counts, strict=True)
            if inner.rows < most
        ]
        joint = [condition for table in bound for condition in relation(table.columns, complete=table.complete)]
        unknown = {**self.trial.opaque, **together.unknown}
        return SizeLattice(
            dims=self._dims(valid, patterns),
            joint=tuple(dict.fromkeys([*joint, *together.joint])),
            imposed=(*self._imposed(), *together.imposed),
            unknown=unknown,
            data_dependent=tuple(node.location for node in self.trial.data_dependent),
            exact=together.exact and not unknown and all(table.complete for table in self.tables),
            tables=tuple(_filled(table, patterns) for table in valid),
        )

    def _patterns(self, valid: Sequence[Table], narrowed: Sequence[Table]) -> dict[str, Pattern]:
        """Finds what goes on between the sizes of long ranges that were run."""
        patterns = {}
        for bit, table in enumerate(self.tables):
            # What depends on other dimensions as well was not found by size alone.
            if not table.sampled or len(table.columns) > 1 or valid[bit].rows != narrowed[bit].rows:
                continue
            (name,) = table.columns
            pattern = pattern_of(table.columns[name], self.accepted[bit], functools.partial(self._try, bit, name))
            if pattern is not None:
                patterns[name] = pattern
        return patterns

    def _try(self, bit: int, name: str, sizes: Vector) -> NDArray[np.bool_]:
        """Runs further sizes of a dimension, the others at their base."""
        bits = {dim: number for number, table in enumerate(self.tables) for dim in table.columns}
        columns = {dim: np.full(len(sizes), self.base[dim], dtype=np.int64) for dim in bits}
        trial = self.runner.points({**columns, name: sizes}, bits)
        return _accepted(trial, bit, slice(0, len(sizes)))

    def _in_part(self, bit: int, narrowed: Table) -> Table:
        """Marks sizes as not looked at that are in no accepted combination of those that were tried."""
        table = self.tables[bit]
        judged = {}
        for name, column in table.columns.items():
            undecided = np.setdiff1d(column[self.accepted[bit]], narrowed.columns[name])
            looked = table.judged.get(name, column[:0]) if table.sampled else column
            judged[name] = distinct(looked[~np.isin(looked, undecided)])
        return dataclasses.replace(narrowed, sampled=True, judged=judged)

    def _dims(self, valid: Sequence[Table], patterns: Mapping[str, Pattern]) -> dict[str, DimLattice]:
        # Of tied dimensions a size counts where its partners are in range as well.
        tables = {name: (table, table.take(table.within(self.spans))) for table in valid for name in table.columns}
        dims = {}
        for name, span in self.spans.items():
            table, inside = tables[name]
            if name in patterns:
                dims[name] = _long_dim(name, span, patterns[name], distinct(table.columns[name]))
                continue
            looked = tuple(table.judged.get(name, np.zeros(0, np.int64)).tolist()) if table.sampled else None
            around, within = (tuple(distinct(part.columns[name]).tolist()) for part in (table, inside))
            dims[name] = _dim(name, span, around, within, looked)
        names = {d for spec in self.runner.inputs for d in spec.dims if isinstance(d, str)}
        for name, expression in derived(names).items():
            if len(expression.symbols) == 1:
                dims[name] = _computed(expression, self.spans[expression.symbols[0]], dims[expression.symbols[0]])
        return dims

    def _imposed(self) -> list[Imposed]:
        """Lists the nodes that rule out sizes, each with those that no node before it rules out."""
        causes: dict[tuple[str, tuple[str, ...]], Imposed] = {}
        for bit, (table, part) in enumerate(zip(self.tables, self.parts, strict=True)):
            inside = table.within(self.spans)
            alive = inside.copy()
            for check in self.trial.checks:
                if check.mask not in (0, 1 << bit):
                    continue
                holds = check.holds[part]
                removed = alive & ~holds
                if removed.any():
                    cause = self._cause(table, check, part, removed)
                    causes.setdefault((check.node.label, cause.dims), cause)
                    alive &= holds
        return list(causes.values())

    def _cause(self, table: Table, check: Check, part: slice, removed: NDArray[np.bool_]) -> Imposed:
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

    def _together(self, valid: Sequence[Table]) -> Together:
        """Decides the conditions that depend on several tables."""
        if not self.trial.compared or len(valid) < 2 or not all(table.rows for table in valid):
            return Together(list(valid))
        inside = [table.take(table.within(self.spans)) for table in valid]
        if not all(table.rows for table in inside):
            return Together(list(valid))
        combinations = Tried(self.runner, inside, self.base)
        if not combinations.failing:
            return Together(list(valid), exact=combinations.whole, unknown=combinations.unknown)
        return combinations.together(valid)


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
    dim = _dim(name, span, some, None, tuple(run.tolist()))
    if pattern.everything(*span):
        return dataclasses.replace(dim, step=1, offset=0, valid=None)
    return dim


def _computed(expression: Expression, span: tuple[int, int], symbol: DimLattice) -> DimLattice:
    """Returns the sizes of a dimension that is computed from one other."""

    def computed(sizes: Sequence[int]) -> tuple[int, ...]:
        values = np.broadcast_to(expression.evaluate({symbol.name: np.array(sizes, dtype=np.int64)}), len(sizes))
        return tuple(distinct(values).tolist())

    ends = sorted(int(expression.evaluate({symbol.name: n})) for n in span)
    looked = None if symbol.looked is None else computed(symbol.looked)
    return _dim(expression.text, (ends[0], ends[1]), computed(symbol.around), None, looked)
