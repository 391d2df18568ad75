"""Which sizes to optimize profiles for, so that given requests cost least: a matter of numbers alone.

A request runs at its own size, in the profile whose opt suits it best; or, padded, at an opt that is at least as large.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

_OFF, _OCTAVE = 0.02, 0.1
"""What a size takes more than in a profile for it alone: because it is another one than the opt, and for every doubling
of work between the two. Of the table "Several profiles" in docs/sizes.md, of a GPU that small sizes do not fill."""
_MOST_SETS = 20_000
_MOST_OPTS = 256
_MOST_SWAPS = 1000
_LEAST_GAIN = 1e-9

Amounts = NDArray[np.float64]
Opts = tuple[int, ...]


def surcharge(work: Amounts, opts: Amounts) -> Amounts:
    """Returns what share more sizes take in profiles that are optimized for others: a row a size, a column an opt.

    Args:
        work: The work of each size.
        opts: Likewise of the opts.
    """
    octaves = np.abs(np.log2(work[:, None] / opts[None, :]))
    return np.asarray(_OFF * (octaves > 0) + _OCTAVE * octaves)


def choices(costs: Amounts, order: Amounts, most: int) -> list[Opts]:
    """Chooses opts so that each request, at the cheapest of them, costs least in all.

    Exact where there are few sets of opts, and where each opt best serves neighbours in the order, as along one
    dimension, with up to 256 sizes; otherwise what exchanges of one opt no longer improve.

    Args:
        costs: What all requests of a size (row) cost with an opt (column).
        order: A number of each size by which neighbours are told: its work.
        most: How many opts at most.

    Returns:
        The columns of one opt, of two and so on, as far as there are so many.
    """
    candidates = _candidates(costs, order)
    columns = np.ascontiguousarray(costs[:, candidates].T)
    best: list[Opts] = []
    for count, along in enumerate(_along(columns, order, min(most, len(candidates))), start=1):
        if math.comb(len(candidates), count) <= _MOST_SETS:
            sets = itertools.combinations(range(len(candidates)), count)
            best.append(min(sets, key=lambda opts: _total(columns, opts)))
        else:
            starts = [along, *(_with_another(columns, opts) for opts in best[-1:])]
            best.append(_improved(columns, min(starts, key=lambda opts: _total(columns, opts))))
    return [tuple(candidates[opt] for opt in sorted(opts)) for opts in best]


def _total(columns: Amounts, opts: Opts) -> float:
    return float(columns[list(opts)].min(axis=0).sum())


def _candidates(costs: Amounts, order: Amounts) -> list[int]:
    """Returns the columns that may become opts: all, or of many those that weigh most among their neighbours."""
    ranks = np.argsort(order, kind="stable")
    weight = np.diag(costs)
    parts = np.array_split(ranks, min(_MOST_OPTS, len(ranks)))
    return sorted(int(part[np.argmax(weight[part])]) for part in parts)


def _along(columns: Amounts, order: Amounts, most: int) -> list[Opts]:
    """Divides the sizes, in order, into runs with an opt each: the cheapest such division (dynamic programming).

    Args:
        columns: What all requests of a size (column) cost with a candidate (row).
        order: A number of each size.
        most: How many runs at most.

    Returns:
        The candidates of the cheapest division into one run, into at most two and so on.
    """
    ranks = np.argsort(order, kind="stable")
    parts = np.array_split(ranks, min(_MOST_OPTS, len(ranks)))
    sums = np.cumsum([np.zeros(len(columns)), *(columns[:, part].sum(axis=1) for part in parts)], axis=0)
    ends = len(parts) + 1
    best = np.full((ends, ends), np.inf)
    which = np.zeros((ends, ends), np.int64)
    for begin in range(ends - 1):
        # The first row of what is left has all that stands before it taken off.
        spans = sums[begin + 1 :] - sums[begin]
        best[begin, begin + 1 :], which[begin, begin + 1 :] = spans.min(axis=1), spans.argmin(axis=1)
    least, begins, divisions = best[0], [np.zeros(ends, np.int64)], []
    for _ in range(most):
        opts, end = set(), ends - 1
        for back in reversed(begins):
            opts.add(int(which[back[end], end]))
            end = int(back[end])
        divisions.append(tuple(opts))
        through = least[:, None] + best
        begins.append(through.argmin(axis=0))
        least = through.min(axis=0)
    return divisions


def _with_another(columns: Amounts, opts: Opts) -> Opts:
    """Returns opts and the candidate that saves most beside them."""
    least = columns[list(opts)].min(axis=0)
    return (*opts, int(np.minimum(columns, least).sum(axis=1).argmin()))


def _improved(columns: Amounts, opts: Opts) -> Opts:
    """Exchanges an opt for a candidate whenever that saves something, until no exchange does.

    Each candidate is tried against all opts at once, as in FasterPAM (Schubert and Rousseeuw, 2021).
    """
    choice = list(dict.fromkeys(opts))
    near, second, nearest = _nearest(columns, choice)
    turn = swaps = failures = 0
    while failures < len(columns) and swaps < _MOST_SWAPS:
        candidate = turn % len(columns)
        costs = columns[candidate]
        saved = np.minimum(costs - near, 0).sum()
        # What the requests of an opt lose without it, where they have the candidate and the second best.
        losses = np.bincount(nearest, np.clip(costs, near, second) - near, len(choice))
        place = int(losses.argmin())
        if saved + losses[place] < -_LEAST_GAIN * near.sum():
            choice[place] = candidate
            near, second, nearest = _nearest(columns, choice)
            swaps, failures = swaps + 1, 0
        else:
            failures += 1
        turn += 1
    return tuple(choice)


def _nearest(columns: Amounts, opts: list[int]) -> tuple[Amounts, Amounts, NDArray[np.int64]]:
    """Returns of each size what the best and the second best opt cost, and the place of the best."""
    own = columns[opts]
    nearest = own.argmin(axis=0)
    near = own.min(axis=0)
    own[nearest, np.arange(own.shape[1])] = np.inf
    return near, own.min(axis=0), nearest
