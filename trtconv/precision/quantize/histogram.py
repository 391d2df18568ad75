"""Histograms of magnitudes whose size does not depend on what they count.

A bin is what float32 numbers have in common but for their last bits: 1024 bins from each power of two to the next, so
that a bin is at most a thousandth of its values wide whatever the range, and one value a million times as large as the
others costs no memory and hides none of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_CUT = 13
"""Bits of the 23 of a mantissa that a bin leaves open."""
_OCTAVE = 1 << (23 - _CUT)
_MOST_BINS = 32 * _OCTAVE
"""Below 2^-32 of the largest value, all is counted as 0: no scale of int8 tells it from that."""


class Histogram:
    """How many magnitudes lie in each bin."""

    def __init__(self) -> None:
        self._first = 0
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, values: NDArray[Any]) -> None:
        """Takes in values, of any shape, which are finite."""
        bits = np.abs(values.reshape(-1).astype(np.float32, copy=False)).view(np.uint32)
        bins = (bits >> _CUT).astype(np.int64)
        if not bins.size:
            return
        end = max(int(bins.max()) + 1, self._first + len(self._counts))
        lowest = int(bins.min()) if not len(self._counts) else min(int(bins.min()), self._first)
        first = max(lowest, end - _MOST_BINS)
        counts: NDArray[np.int64] = np.bincount(np.maximum(bins - first, 0), minlength=end - first)
        self._join(counts, first)

    def _join(self, counts: NDArray[np.int64], first: int) -> None:
        """Adds what was counted before; what lies below the first bin is counted in it."""
        skipped = max(0, first - self._first)
        if len(self._counts):
            counts[0] += self._counts[:skipped].sum()
            rest = self._counts[skipped:]
            begin = self._first + skipped - first
            counts[begin : begin + len(rest)] += rest
        self._first, self._counts = first, counts

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many magnitudes lie in each bin, from the smallest."""
        return self._counts

    @property
    def edges(self) -> NDArray[np.float64]:
        """The ends of the bins, one more than there are bins."""
        bits = (np.arange(self._first, self._first + len(self._counts) + 1, dtype=np.uint64) << _CUT).astype(np.uint32)
        # Beyond the largest bin of all lies infinity.
        ends: NDArray[np.float64] = np.minimum(bits.view(np.float32).astype(np.float64), np.finfo(np.float32).max)
        return ends

    def percentile(self, percent: float) -> float:
        """Returns the magnitude that this share of the values does not exceed, to the width of a bin."""
        reached = np.cumsum(self._counts)
        index = int(np.searchsorted(reached, reached[-1] * percent / 100))
        return float(self.edges[min(index, len(self._counts) - 1) + 1])

    def even(self, bins: int, largest: float) -> NDArray[np.int64]:
        """Returns counts in bins of one width from 0 to the largest magnitude."""
        edges = self.edges
        place = ((edges[:-1] + edges[1:]) / 2 / largest * bins).astype(np.int64)
        counts = np.bincount(np.minimum(place, bins - 1), weights=self._counts, minlength=bins)
        return counts.astype(np.int64)
