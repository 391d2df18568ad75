"""Which sizes to optimize profiles for, so that given requests cost least: a matter of numbers alone.

A request runs at its own size, in the profile whose opt suits it best; or, padded, at an opt that is at least as large.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_OFF, _OCTAVE = 0.02, 0.1
"""What a size takes more than in a profile for it alone: because it is another one than the opt, and for every doubling
of work between the two. Of the table "Several profiles" in docs/sizes.md, of a GPU that small sizes do not fill."""
_MOST_SETS = 20_000
_MOST_OPTS = 256
_MOST_SWAPS = 1000

Amounts = NDArray[np.float64]


def away(times: Amounts, opts: Amounts, work: Amounts, work_of_opts: Amounts) -> Amounts:
    """Returns what sizes take in profiles that are optimized for others: a row a size, a column an opt.

    Args:
        times: What each size takes where it is the opt.
        opts: Likewise of the opts.
        work: The work of each size.
        work_of_opts: Likewise of the opts.
    """
    octaves = np.abs(np.log2(work[:, None] / work_of_opts[None, :]))
    other = (octaves > 0) | (times[:, None] != opts[None, :])
    return np.asarray(times[:, None] * (1 + _OFF * other + _OCTAVE * octaves))


def chosen(costs: Amounts, order: Amounts, count: int) -> tuple[int, ...]:
    """Chooses opts so that each request, at the cheapest of them, costs least in all.

    Exact where there are few sets of opts, and where each opt best serves neighbours in the order, as along one
    dimension, with up to 256 sizes; otherwise what exchanges of one opt no longer improve.

    Args:
        costs: What all requests of a size (row) cost with an opt (column).
        order: A number of each size by which neighbours are told: its work.
        count: How many opts, at most as many as there are.

    Returns:
        The columns of the opts.
    """
    candidates = _candidates(costs, order)
    count = min(count, len(candidates))
    if math.comb(len(candidates), count) <= _MOST_SETS:
        sets = itertools.combinations(candidates, count)
        return min(sets, key=lambda opts: float(costs[:, opts].min(axis=1).sum()))
    return _improved(costs, _along(costs, order, candidates, count), candidates)


def _candidates(costs: Amounts, order: Amounts) -> list[int]:
    """Returns the columns that may become opts: all, or of many those that weigh most among their neighbours."""
    ranks = np.argsort(order, kind="stable")
    weight = np.diag(costs)
    parts = np.array_split(ranks, min(_MOST_OPTS, len(ranks)))
    return sorted(int(part[np.argmax(weight[part])]) for part in parts)


def _along(costs: Amounts, order: Amounts, candidates: Sequence[int], count: int) -> tuple[int, ...]:
    """Divides the sizes, in order, into runs with an opt each: the cheapest such division (dynamic programming)."""
    ranks = np.argsort(order, kind="stable")
    parts = np.array_split(ranks, min(_MOST_OPTS, len(ranks)))
    sums = np.cumsum([np.zeros(len(candidates)), *(costs[part][:, candidates].sum(axis=0) for part in parts)], axis=0)
    ends = len(parts) + 1
    best = np.full((ends, ends), np.inf)
    which = np.zeros((ends, ends), np.int64)
    for begin in range(ends - 1):
        # The first row of what is left has all that stands before it taken off.
        spans = sums[begin + 1 :] - sums[begin]
        best[begin, begin + 1 :], which[begin, begin + 1 :] = spans.min(axis=1), spans.argmin(axis=1)
    least, back = best[0].copy(), []
    for _ in range(count - 1):
        through = least[:, None] + best
        back.append(through.argmin(axis=0))
        least = through.min(axis=0)
    opts, end = [], ends - 1
    for step in reversed(back):
        begin = int(step[end])
        opts.append(candidates[which[begin, end]])
        end = begin
    return tuple(sorted({*opts, candidates[which[0, end]]}))


def _improved(costs: Amounts, opts: tuple[int, ...], candidates: Sequence[int]) -> tuple[int, ...]:
    """Exchanges one opt after the other as long as that saves something."""
    columns = costs[:, candidates]
    current = float(costs[:, opts].min(axis=1).sum())
    for _ in range(_MOST_SWAPS):
        found = None
        for place in range(len(opts)):
            rest = costs[:, [*opts[:place], *opts[place + 1 :]]].min(axis=1, initial=np.inf)
            totals = np.minimum(rest[:, None], columns).sum(axis=0)
            at = int(totals.argmin())
            if totals[at] < current * (1 - 1e-9):
                current, found = float(totals[at]), (*opts[:place], candidates[at], *opts[place + 1 :])
        if found is None:
            break
        opts = found
    return tuple(sorted(set(opts)))
