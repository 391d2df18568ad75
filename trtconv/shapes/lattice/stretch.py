"""Ranges too long to run every size of: which sizes are run instead, and the pattern that goes on between them.

A stretch of consecutive sizes at both ends, strips between, what was asked about and its neighbours, and some thousand
single sizes are run. Where one period explains all of them, it is tried at thousands more, on it and off it, and taken
to hold in between. Where none does, nothing is said about sizes that were not run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.core.frozen import frozen
from trtconv.shapes.lattice.number import distinct
from trtconv.shapes.lattice.tables import MAX_ROWS, Vector
from trtconv.shapes.lattice.trial import Check

MAX_LISTED = 2**21
"""Accepted sizes up to this number are listed; of more, those that were run and some between them."""
_END = 20_480
_START_UP = 4_096
"""What small sizes may do otherwise (windows that they do not fill) is not looked at for a period."""
_STRIPS, _STRIP = 16, 768
_AROUND = 8_192
_SINGLE = 4_096
_THINNED = 32_768
_TURNS = 16
_BETWEEN = 66

Flags = NDArray[np.bool_]


def candidates(first: int, last: int, anchors: Collection[int]) -> Vector:
    """Returns the sizes to run: all where they are few.

    Args:
        first: The smallest.
        last: The largest.
        anchors: Sizes to run with their neighbours.
    """
    span = last - first + 1
    if span <= MAX_ROWS:
        return np.arange(first, last + 1, dtype=np.int64)
    starts = [(first, _END), (last - _END + 1, _END)]
    # At even parts of the range, so that dimensions of which one is twice the other are looked at in the same places.
    starts += [(first + span * number // (_STRIPS + 1), _STRIP) for number in range(1, _STRIPS + 1)]
    inside = sorted({size for size in anchors if first <= size <= last})
    reach = _AROUND // max(1, len(inside))
    starts += [(size - reach // 2, reach + 1) for size in inside]
    ends = first + np.arange(_SINGLE + 1) * span // _SINGLE
    single = np.random.default_rng(0).integers(ends[:-1], ends[1:])
    sizes = np.concatenate([*(np.arange(start, start + count) for start, count in starts), single])
    return distinct(sizes[(sizes >= first) & (sizes <= last)])


def turning(checks: Sequence[Check], mask: int, part: slice, sizes: Vector) -> Vector | None:
    """Returns sizes to run as well: where a condition ceases to hold, or the two numbers that it compares cross.

    There a largest size ends what is accepted, or the one size is that fits.

    Args:
        checks: The conditions of a run.
        mask: That of the dimension.
        part: The rows of the run in which it ranges.
        sizes: Its sizes there.

    Returns:
        The sizes; None where nothing is left between those that were run.
    """
    additions = []
    for check in checks:
        if check.mask == mask:
            gaps = _turns(check, part, sizes)
            additions += [np.linspace(sizes[at], sizes[at + 1], _BETWEEN).astype(np.int64) for at in gaps]
    return distinct(np.concatenate([sizes, *additions])) if additions else None


def _turns(check: Check, part: slice, sizes: Vector) -> list[int]:
    holds = check.holds[part]
    turned = [holds[:-1] != holds[1:]]
    values = [np.asarray(num.value) for num in (check.left, check.right)]
    if all(value.dtype.kind in "iuf" for value in values):
        left, right = (value[part] if value.ndim else value for value in values)
        larger, smaller = (np.broadcast_to(flags, holds.shape) for flags in (left > right, left < right))
        turned.append((larger[:-1] & smaller[1:]) | (smaller[:-1] & larger[1:]))
    turns = [np.flatnonzero(flags & (np.diff(sizes) > 1)).tolist() for flags in turned]
    # What goes up and down all the time has no turn to look for.
    return [at for gaps in turns if len(gaps) <= _TURNS for at in gaps]


@frozen
class Pattern:
    """Which sizes of a long range are accepted.

    Args:
        takes: Whether a size is, by its remainder; as many entries as the period is long.
        begin: The smallest size that it holds for.
        end: The largest one.
        head: Accepted sizes below.
        tail: Accepted sizes above.
    """

    takes: Flags
    begin: int
    end: int
    head: tuple[int, ...]
    tail: tuple[int, ...]

    def accepts(self, sizes: Vector) -> Flags:
        """Tells which sizes between `begin` and `end` are accepted."""
        flags: Flags = self.takes[sizes % len(self.takes)]
        return flags

    def sizes(self) -> Sequence[int] | None:
        """Returns all accepted sizes in order; None where they are too many."""
        period, residues = len(self.takes), np.flatnonzero(self.takes)
        if ((self.end - self.begin) // period + 1) * len(residues) > MAX_LISTED:
            return None
        if len(residues) == 1 and not self.head and not self.tail:
            return range(self.begin + (int(residues[0]) - self.begin) % period, self.end + 1, period)
        whole = np.arange(self.begin // period, self.end // period + 1) * period
        matches = (whole[:, None] + residues[None, :]).ravel()
        return (*self.head, *matches[(matches >= self.begin) & (matches <= self.end)].tolist(), *self.tail)

    def everything(self, low: int, high: int) -> bool:
        """Whether every size of a range is accepted."""
        return bool(self.takes.all()) and low >= self.begin and high <= self.end

    def some(self) -> Vector:
        """Returns accepted sizes at even distances."""
        step = max(1, (self.end - self.begin) // _THINNED)
        return self._accepted(np.arange(self.begin, self.end + 1, step))

    def probes(self) -> Vector:
        """Returns sizes to try the pattern at: accepted ones, their neighbours, and others."""
        random = np.random.default_rng(1)
        anywhere = random.integers(self.begin, self.end + 1, _SINGLE)
        good = self._accepted(random.integers(self.begin, self.end + 1, _SINGLE))
        sizes = np.concatenate([anywhere, good, good - 1, good + 1])
        return distinct(sizes[(sizes >= self.begin) & (sizes <= self.end)])

    def _accepted(self, sizes: Vector) -> Vector:
        """Returns for each size the next accepted one, where there is one."""
        period, residues = len(self.takes), np.flatnonzero(self.takes)
        twice = np.concatenate([residues, residues + period])
        moved = sizes - sizes % period + twice[np.searchsorted(twice, sizes % period)]
        return distinct(moved[moved <= self.end])


def pattern_of(sizes: Vector, accepted: Flags, run: Callable[[Vector], Flags]) -> Pattern | None:
    """Finds the period that explains all sizes that were run; None where there is none.

    Args:
        sizes: The candidates of a long range.
        accepted: Which of them are accepted.
        run: Runs further sizes, and tells which are accepted.
    """
    breaks = np.flatnonzero(np.diff(sizes) > 1) + 1
    if not len(breaks) or breaks[0] <= 2 * _START_UP:
        return None
    early, late = int(breaks[0]), int(breaks[-1])
    period = _period(accepted[_START_UP:early])
    if period is None:
        return None
    takes = np.zeros(period, dtype=bool)
    takes[sizes[early - period : early] % period] = accepted[early - period : early]
    wrong = np.flatnonzero(takes[sizes % period] != accepted)
    before, behind = wrong[wrong < early], wrong[wrong >= late]
    begin = int(before[-1]) + 1 if len(before) else 0
    end = int(behind[0]) if len(behind) else len(sizes)
    # A pattern that accepts nothing would call sizes refused that nobody looked at: one of them may be the one.
    if len(before) + len(behind) < len(wrong) or not takes.any() or min(early - begin, end - late) < 2 * period:
        return None
    head, tail = sizes[:begin][accepted[:begin]], sizes[end:][accepted[end:]]
    pattern = Pattern(takes, int(sizes[begin]), int(sizes[end - 1]), tuple(head.tolist()), tuple(tail.tolist()))
    probes = pattern.probes()
    return pattern if np.array_equal(run(probes), pattern.accepts(probes)) else None


def _period(flags: Flags) -> int | None:
    return next((n for n in range(1, len(flags) // 2 + 1) if np.array_equal(flags[n:], flags[:-n])), None)


def run_with(sizes: Vector, size: int) -> slice:
    """Returns where the consecutive sizes are that one of them belongs to."""
    breaks = np.flatnonzero(np.diff(sizes) > 1) + 1
    at = int(np.searchsorted(sizes, size))
    ends = [0, *breaks.tolist(), len(sizes)]
    number = int(np.searchsorted(breaks, at, "right"))
    return slice(ends[number], ends[number + 1])
