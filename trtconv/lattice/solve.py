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
        np.asarray(num.value)[parts[bit]][accepted[bit]]
        for num, bit in zip((tie.left, tie.right), bits, strict=True)
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
        joint = [said for table in tied for said in relation(table.columns)]
        return SizeLattice(
            dims=self._dims(valid),
            joint=tuple(dict.fromkeys([*joint, *together.joint])),
            imposed=tuple([*self._imposed(), *together.imposed]),
            unknown=dict(self.trial.opaque),
            data_dependent=tuple(node.location for node in self.trial.data_dependent),
            exact=together.exact and not self.trial.opaque and all(table.complete for table in self.tables),
            tables=tuple(valid),
        )

    def _dims(self, valid: Sequence[Table]) -> dict[str, DimLattice]:
        dims = {name: _dim(name, span, sizes_of(valid, name)) for name, span in self.spans.items()}
        names = {d for spec in self.runner.inputs for d in spec.dims if isinstance(d, str)}
        for name, expression in derived(names).items():
            if len(expression.symbols) == 1:
                symbol = expression.symbols[0]
                ends = sorted(int(expression.evaluate({symbol: n})) for n in self.spans[symbol])
                sizes = np.unique(np.asarray(expression.evaluate({symbol: sizes_of(valid, symbol)}), dtype=np.int64))
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
            above = table.columns[names[0]] >= self.spans[names[0]][0]
            asks = needs(table.columns[names[0]][above], check.holds[part][above])
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
        rows, whole = _combinations([table.rows for table in inside], self.base, inside)
        columns = {n: c[rows[i]] for i, table in enumerate(inside) for n, c in table.columns.items()}
        bits = {n: i for i, table in enumerate(inside) for n in table.columns}
        trial = self.runner.points(columns, bits)
        failing = [c for c in trial.checks if c.mask & (c.mask - 1) and not c.holds.all()]
        if not failing:
            return _Together(list(valid), exact=whole)
        return _Together(*_tied(valid, inside, rows, columns, bits, failing), exact=whole)


@dataclasses.dataclass(frozen=True)
class _Together:
    tables: list[Table]
    joint: tuple[str, ...] = ()
    imposed: tuple[Imposed, ...] = ()
    exact: bool = True


def _combinations(counts: Sequence[int], base: Mapping[str, int], tables: Sequence[Table]) -> tuple[list[Any], bool]:
    """Returns rows of every table, combined: all combinations where they are few, else random ones and lines."""
    total = int(np.prod([float(n) for n in counts]))
    if total <= _GRID:
        return [grid.ravel() for grid in np.meshgrid(*(np.arange(n) for n in counts), indexing="ij")], True
    random = np.random.default_rng(0)
    picks = [random.integers(0, n, _SAMPLES) for n in counts]
    middle = [table.nearest_row(base) for table in tables]
    for axis, count in enumerate(counts):
        line = np.unique(np.linspace(0, count - 1, min(count, _SAMPLES)).astype(np.int64))
        for other in range(len(counts)):
            picks[other] = np.concatenate([picks[other], line if other == axis else np.full(len(line), middle[other])])
    # Sizes are often meant to be equal: the diagonal is tried as well.
    longest = max(counts)
    for axis, count in enumerate(counts):
        picks[axis] = np.concatenate([picks[axis], np.minimum(np.arange(longest), count - 1)])
    return picks, False


def _tied(
    valid: Sequence[Table],
    inside: Sequence[Table],
    rows: Sequence[Any],
    columns: Mapping[str, Vector],
    bits: Mapping[str, int],
    failing: Sequence[Check],
) -> tuple[list[Table], tuple[str, ...], tuple[Imposed, ...]]:
    """Narrows the tables to the sizes that occur in some accepted combination, and says what ties them."""
    good = np.ones(len(rows[0]), dtype=bool)
    joint, imposed = [], []
    for check in failing:
        names = [name for name, bit in bits.items() if check.mask >> bit & 1]
        said = combination({name: columns[name] for name in names}, check.holds)
        removed = good & ~check.holds
        if removed.any():
            row = int(np.argmax(removed))
            sizes = ", ".join(f"{name} {columns[name][row]}" for name in names)
            evidence = f"{check.evidence(row)} with {sizes}"
            imposed.append(Imposed(tuple(names), said, evidence, check.node.location, check.node.source))
            joint.append(said)
        good &= check.holds
    narrowed = []
    for index, (whole, part) in enumerate(zip(valid, inside, strict=True)):
        if any(check.mask >> index & 1 for check in failing):
            narrowed.append(part.take(np.unique(rows[index][good])))
        else:
            narrowed.append(whole)
    return narrowed, tuple(dict.fromkeys(joint)), tuple(imposed)


def _dim(name: str, span: tuple[int, int], around: Vector) -> DimLattice:
    low, high = span
    inside = around[(around >= low) & (around <= high)]
    step, offset = step_and_offset(inside if len(inside) > 1 else around)
    everything = len(inside) == high - low + 1 or (high - low >= MAX_ROWS and step == 1)
    valid = None if everything else tuple(inside.tolist())
    return DimLattice(name, low, high, step, offset, valid, tuple(around.tolist()))

