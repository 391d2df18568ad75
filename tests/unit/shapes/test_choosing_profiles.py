"""Which sizes profiles are optimized for: the cheapest sets, held to a search through all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trtconv.shapes.planning import choosing
from trtconv.shapes.planning.choosing import away, chosen

Amounts = NDArray[np.float64]
WORKS = st.lists(st.integers(1, 10_000), min_size=1, max_size=9, unique=True)


def along_a_line(works: list[int], counts: list[int]) -> tuple[Amounts, Amounts]:
    """Returns costs and work of requests along one dimension: each may be padded to any larger one."""
    work = np.array(works, np.float64)
    fits = work[None, :] >= work[:, None]
    each = np.minimum(away(work, work, work, work), np.where(fits, work[None, :], np.inf))
    return np.array(counts, np.float64)[:, None] * each, work


def total(costs: Amounts, opts: tuple[int, ...]) -> float:
    return float(costs[:, opts].min(axis=1).sum())


def cheapest(costs: Amounts, count: int) -> float:
    return min(total(costs, opts) for opts in itertools.combinations(range(len(costs)), count))


@pytest.mark.parametrize("most_sets", [20_000, 0])
@given(works=WORKS, data=st.data())
def test_no_other_opts_cost_less(most_sets: int, works: list[int], data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 1000), min_size=len(works), max_size=len(works)))
    count = data.draw(st.integers(1, len(works)))
    costs, work = along_a_line(works, counts)
    with pytest.MonkeyPatch.context() as patch:
        # Without the search through all sets: the division along the line.
        patch.setattr(choosing, "_MOST_SETS", most_sets)
        opts = chosen(costs, work, count)
    assert len(set(opts)) == len(opts) <= count
    assert total(costs, opts) == pytest.approx(cheapest(costs, count))


@given(works=WORKS, data=st.data())
def test_further_opts_never_cost_more(works: list[int], data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 1000), min_size=len(works), max_size=len(works)))
    costs, work = along_a_line(works, counts)
    totals = [total(costs, chosen(costs, work, count)) for count in range(1, len(works) + 1)]
    assert all(more <= fewer * (1 + 1e-9) for fewer, more in itertools.pairwise(totals))
    assert totals[-1] == pytest.approx(float(np.dot(counts, work)))


def test_many_sizes_are_divided_too() -> None:
    random = np.random.default_rng(0)
    works = np.unique(random.integers(1, 1_000_000, 1500)).tolist()
    costs, work = along_a_line(works, random.integers(1, 50, len(works)).tolist())
    totals = [total(costs, chosen(costs, work, count)) for count in (1, 2, 4, 8)]
    assert all(more < fewer for fewer, more in itertools.pairwise(totals))


def test_a_size_costs_least_at_its_own_opt() -> None:
    work = np.array([1.0, 2.0, 8.0])
    times = away(work, work, work, work)
    assert times.diagonal().tolist() == work.tolist()
    assert times[0, 1] < times[0, 2]
    assert times[0, 0] < times[0, 1]
