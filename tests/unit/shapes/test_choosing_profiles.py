"""Which sizes profiles are optimized for: the cheapest sets, held to a search through all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trtconv.shapes.planning import choosing
from trtconv.shapes.planning.choosing import choices, surcharge

Amounts = NDArray[np.float64]
WORKS = st.lists(st.integers(1, 10_000), min_size=1, max_size=9, unique=True)


def along_a_line(works: list[int], counts: list[int]) -> tuple[Amounts, Amounts]:
    """Returns costs and work of requests along one dimension: each may be padded to any larger one."""
    work = np.array(works, np.float64)
    fits = work[None, :] >= work[:, None]
    each = np.minimum(work[:, None] * (1 + surcharge(work, work)), np.where(fits, work[None, :], np.inf))
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
        opts = choices(costs, work, count)[-1]
    assert len(set(opts)) == len(opts) <= count
    assert total(costs, opts) == pytest.approx(cheapest(costs, count))


@given(works=WORKS, data=st.data())
def test_further_opts_never_cost_more(works: list[int], data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 1000), min_size=len(works), max_size=len(works)))
    costs, work = along_a_line(works, counts)
    totals = [total(costs, opts) for opts in choices(costs, work, len(works))]
    assert len(totals) == len(works)
    assert all(more <= fewer * (1 + 1e-9) for fewer, more in itertools.pairwise(totals))
    assert totals[-1] == pytest.approx(float(np.dot(counts, work)))


def swapped(opts: tuple[int, ...], place: int, opt: int) -> tuple[int, ...]:
    return (*opts[:place], opt, *opts[place + 1 :])


@given(seed=st.integers(0, 10**6), count=st.integers(2, 6))
def test_no_exchange_of_one_opt_saves_anything(seed: int, count: int) -> None:
    # Two dimensions: neighbours by work are no neighbours by size, and the division along a line is not the best.
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 64, (24, 2)).astype(np.float64)
    work = sizes.prod(axis=1)
    fits = (sizes[None] >= sizes[:, None]).all(axis=2)
    each = np.where(fits, work[None, :], work[:, None] * (1 + surcharge(work, work)))
    costs = random.integers(1, 99, 24)[:, None] * np.minimum(each, work[:, None] * (1 + surcharge(work, work)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choosing, "_MOST_SETS", 0)
        opts = choices(costs, work, count)[-1]
    least = total(costs, opts) * (1 - 1e-6)
    assert all(total(costs, swapped(opts, place, opt)) >= least for place in range(len(opts)) for opt in range(24))


def test_many_sizes_are_divided_too() -> None:
    random = np.random.default_rng(0)
    works = np.unique(random.integers(1, 1_000_000, 1500)).tolist()
    costs, work = along_a_line(works, random.integers(1, 50, len(works)).tolist())
    totals = [total(costs, opts) for opts in choices(costs, work, 64)]
    assert len(totals) == 64
    assert all(more < fewer for fewer, more in itertools.pairwise(totals))


def test_a_size_costs_least_at_its_own_opt() -> None:
    work = np.array([1.0, 2.0, 8.0])
    shares = surcharge(work, work)
    assert shares.diagonal().tolist() == [0, 0, 0]
    assert 0 < shares[0, 1] < shares[0, 2]
    assert shares[0, 1] == shares[1, 0]


def test_a_size_takes_more_in_a_profile_for_another_one() -> None:
    """A fiftieth because it is another one, and a tenth for every doubling of work, up or down."""
    work = np.array([1.0, 2.0, 8.0])
    assert surcharge(work, work) == pytest.approx(np.array([[0, 0.12, 0.32], [0.12, 0, 0.22], [0.32, 0.22, 0]]))
