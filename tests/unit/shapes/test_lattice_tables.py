"""Candidates: which sizes are run of long ranges, and which combinations of sizes that are tied."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.sizes import parse
from trtconv.core.findings import Location
from trtconv.shapes.lattice import Num, Sizes, stretch, tables
from trtconv.shapes.lattice.number import lift
from trtconv.shapes.lattice.stretch import Pattern, candidates, run_with, turning
from trtconv.shapes.lattice.tables import MAX_ROWS, Table, first_faults, join
from trtconv.shapes.lattice.trial import Check, Node

NODE = Node("Add", "", (), (), {}, Location(), 17)
SIDES = st.lists(st.integers(1, 5), min_size=1, max_size=12)


def pairs(one: list[int], two: list[int], *, ones: bool) -> list[tuple[int, int]]:
    """Returns which rows of two tables go together."""
    fits = itertools.product(range(len(one)), range(len(two)))
    return [(i, j) for i, j in fits if one[i] == two[j] or (ones and 1 in (one[i], two[j]))]


def joined(one: list[int], two: list[int], *, ones: bool, anchors: dict[str, list[int]] | None = None) -> Table:
    a, b = Table({"a": np.arange(len(one))}), Table({"b": np.arange(len(two))})
    return join(a, b, np.array(one), np.array(two), ones=ones, anchors=anchors)


@given(SIDES, SIDES, st.booleans())
def test_rows_of_which_two_sizes_are_equal(one: list[int], two: list[int], ones: bool) -> None:
    table = joined(one, two, ones=ones)
    found = list(zip(table.columns["a"].tolist(), table.columns["b"].tolist(), strict=True))
    assert sorted(found) == pairs(one, two, ones=ones)
    assert table.complete
    assert not table.sampled


@pytest.mark.parametrize("most", [1, 5, 12])
@settings(max_examples=60)
@given(one=SIDES, two=SIDES, ones=st.booleans(), asked=st.tuples(st.integers(0, 11), st.integers(0, 11)))
def test_of_too_many_rows_each_size_keeps_a_partner(
    most: int, one: list[int], two: list[int], ones: bool, asked: tuple[int, int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "MAX_ROWS", most)
        table = joined(one, two, ones=ones, anchors={"a": [asked[0]], "b": [asked[1]]})
    found = list(zip(table.columns["a"].tolist(), table.columns["b"].tolist(), strict=True))
    every = pairs(one, two, ones=ones)
    assert len(found) == len(set(found))
    assert set(found) <= set(every)
    assert table.complete == (len(every) <= most)
    for side in (0, 1):
        assert {pair[side] for pair in found} == {pair[side] for pair in every}
    assert (asked in found) == (asked in every)
    assert len(found) <= most + len(one) + len(two) + 1


def test_what_is_left_out_of_two_tables_is_left_out_of_both() -> None:
    sizes = np.arange(1, 4)
    whole, part = Table({"a": sizes}), Table({"b": sizes}, False, True, {"b": sizes})
    table = join(whole, part, sizes, sizes, ones=False)
    assert (table.complete, table.sampled, dict(table.judged)) == (False, True, {"b": sizes})
    # A size of one whose partners were not all looked at is not refused for want of one.
    both = join(part, Table({"c": sizes}, False, True, {"c": sizes}), sizes, sizes, ones=False)
    assert dict(both.judged) == {}
    turned = join(part, whole, sizes, sizes, ones=False)
    assert dict(turned.judged) == {"b": sizes}


def test_rows_of_a_table() -> None:
    table = Table({"a": np.array([1, 5, 9, 9]), "b": np.array([4, 4, 2, 7])})
    assert table.rows == 4
    assert table.within({"a": (5, 9), "b": (2, 4)}).tolist() == [False, True, True, False]
    assert table.within({"a": (1, 8), "b": (5, 7)}).tolist() == [False] * 4
    assert [table.nearest_row({"a": a, "b": b}) for a, b in ((1, 4), (6, 4), (9, 3), (9, 6))] == [0, 1, 2, 3]
    assert table.take([3, 0]).columns["b"].tolist() == [7, 4]


def check(holds: list[bool], left: Num | int = 0, right: Num | int = 0, mask: int = 1) -> Check:
    return Check(NODE, mask, np.array(holds), "", lift(left), lift(right), ties=False)


def test_the_first_condition_that_a_candidate_does_not_meet() -> None:
    one, two = check([True, False, True, False]), check([True, False, False, True])
    assert first_faults([one, two], 4) == [None, one, two, one]
    assert first_faults([two, one], 4) == [None, two, two, one]


@pytest.mark.parametrize("last", [MAX_ROWS, MAX_ROWS + 1, 10**6, 10**9])
@pytest.mark.parametrize("asked", [[], [700_001], [1, 444_444, 10**9]])
def test_sizes_of_a_range_that_are_run(last: int, asked: list[int]) -> None:
    sizes = candidates(1, last, asked)
    assert sizes.dtype == np.int64
    assert (sizes[0], sizes[-1]) == (1, last)
    assert (np.diff(sizes) > 0).all()
    assert (len(sizes) == last) == (last <= MAX_ROWS)
    if last <= MAX_ROWS:
        return
    run = set(sizes.tolist())
    # What was asked for lies in a run of neighbours; so do both ends, and strips at even distances.
    for size in (size for size in asked if size <= last):
        assert run >= {n for n in range(size - 1_000, size + 1_001) if 1 <= n <= last}
    strips = [range(last * n // 17 + 1, last * n // 17 + 700) for n in range(1, 17)]
    assert all(run >= set(strip) for strip in (range(1, 20_001), range(last - 20_000, last + 1), *strips))
    # And single ones everywhere.
    assert last < 10**7 or np.diff(sizes).max() < last // 1_000
    assert len(sizes) < MAX_ROWS + 20_000


@pytest.mark.parametrize("size", [100, 101, 104, 200, 300, 302])
def test_the_run_that_a_size_belongs_to(size: int) -> None:
    runs = [range(100, 105), range(200, 201), range(300, 303)]
    sizes = np.array([n for run in runs for n in run])
    (run,) = (run for run in runs if size in run)
    assert sizes[run_with(sizes, size)].tolist() == list(run)


def test_where_a_condition_turns_it_is_looked_at_closer() -> None:
    sizes = np.array([1, 2, 3, 100, 1_000, 1_001, 5_000])
    part = slice(2, 9)

    def looked(holds: list[bool], left: list[int] | int = 0, right: list[int] | int = 0, mask: int = 1) -> list[int]:
        one, two = (Num(np.array([0, 0, *side, 0]) if isinstance(side, list) else side) for side in (left, right))
        more = turning([check([False, False, *holds, False], one, two, mask)], 1, part, sizes)
        assert more is None or set(sizes.tolist()) <= set(more.tolist())
        return [] if more is None else sorted(set(more.tolist()) - set(sizes.tolist()))

    never, always = [False] * 7, [True] * 7
    assert looked(never) == looked(always) == []
    assert looked([True] * 5 + [False] * 2) == [], "between neighbours there is nothing"
    between = looked([True] * 3 + [False] * 4)
    assert between[0] > 3
    assert between[-1] < 100
    assert len(between) > 30
    assert looked([False] * 6 + [True])[0] > 1_001
    assert looked([True] * 3 + [False] * 4, mask=2) == []
    # One that holds nowhere may do so where its two numbers cross.
    crossing = looked(never, left=[1, 2, 3, 4, 9, 9, 9], right=5)
    assert crossing
    assert all(100 < n < 1_000 for n in crossing)
    assert looked(never, left=5, right=[1, 2, 3, 4, 9, 9, 9]) == crossing
    assert looked(never, left=[9, 9, 9, 9, 1, 1, 1], right=5) == crossing
    assert looked(never, left=[1, 2, 3, 5, 9, 9, 9], right=5) == [], "equal is no crossing: it was run"


def test_what_turns_all_the_time_is_not_looked_at() -> None:
    sizes = np.arange(0, 400, 10)
    few, many = np.arange(40) < 20, np.arange(40) % 2 == 0
    assert turning([check(few.tolist())], 1, slice(0, 40), sizes) is not None
    assert turning([check(many.tolist())], 1, slice(0, 40), sizes) is None


PATTERNS = [
    Pattern(np.array([n in residues for n in range(period)]), begin, end, (), ())
    for period, residues in ((1, {0}), (7, {0}), (7, {1, 4}), (64, {63}), (3, {0, 1, 2}))
    for begin, end in ((8, 300), (9, 9 + 64), (1_000, 2_000_000))
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_some_sizes_of_a_pattern(pattern: Pattern) -> None:
    period = len(pattern.takes)
    some, probes = pattern.some(), pattern.probes()
    assert pattern.accepts(some).all()
    for sizes in (some, probes):
        assert ((sizes >= pattern.begin) & (sizes <= pattern.end)).all()
        assert (np.diff(sizes) > 0).all()
    step = max(1, (pattern.end - pattern.begin) // stretch._THINNED)
    assert some[0] - pattern.begin <= period
    assert pattern.end - some[-1] <= period + step
    assert np.diff(some).max(initial=0) <= period + step
    assert step > 1 or set(some) == {n for n in range(pattern.begin, pattern.end + 1) if pattern.takes[n % period]}
    # It is tried on sizes that it accepts, and on others beside them.
    inside = set(probes.tolist())
    good = [n for n in probes.tolist() if pattern.takes[n % period]]
    assert good
    beside = [n for n in good if pattern.begin < n < pattern.end and {n - 1, n + 1} <= inside]
    assert len(beside) > len(good) // 2 or pattern.end > 10**6
    assert len(beside) > 100 or pattern.end < 10**6


@pytest.mark.parametrize(
    ("low", "high", "every"),
    [(8, 64, True), (7, 64, False), (8, 65, False), (20, 30, True)],
)
def test_every_size_of_a_range(low: int, high: int, every: bool) -> None:
    assert Pattern(np.array([True]), 8, 64, (), ()).everything(low, high) == every
    assert not Pattern(np.array([True, False]), 8, 64, (), ()).everything(low, high)


LIMITED = """g (float[1,t,1] x, float[1,{0},1] table) => (float[a,b,c] y)
    <int64[1] one = {{1}}, int64[1] zero = {{0}}> {{
    s = Shape (x) n = Gather <axis = 0> (s, one) p = Slice (table, zero, n, one) y = Concat <axis = 2> (x, p) }}"""


@pytest.mark.parametrize("most", [65_536, 71_234, 999_999, 1_234_567])
def test_the_largest_size_is_found_wherever_it_is(most: int) -> None:
    dim = Sizes(parse(LIMITED.format(most))).lattice({"t": (16_000, 1_600_000)}).dims["t"]
    assert dim.accepts(most)
    assert not dim.accepts(most + 1)


def test_expressions_are_computed_from_free_sizes() -> None:
    model = parse('g (float["2*s",5,k] x, float[s,"s + k"] z) => (float[a] y) { y = Relu (z) }')
    found = tables.symbols(model.inputs, {"s": Num(np.array([3, 4]), 1), "k": Num(np.array([7, 9]), 2)})
    shapes = {name: [np.asarray(num.value).tolist() for num in shape] for name, shape in found.items()}
    assert shapes == {"x": [[6, 8], 5, [7, 9]], "z": [[3, 4], [10, 13]]}
    assert found["z"][1].mask == 3


EVEN = "g (float[1,1,h,w] x) => (float[a,b,c,d] y) { y = SpaceToDepth <blocksize = 4> (x) }"


@pytest.mark.parametrize(
    ("size", "nearest", "above", "below"),
    [(16, 16, 16, 16), (17, 16, 20, 16), (18, 20, 20, 16), (19, 20, 20, 16), (1, 4, 4, 4), (70, 72, 72, 68)],
)
def test_sizes_are_rounded_to_the_nearest_the_larger_of_two(size: int, nearest: int, above: int, below: int) -> None:
    lattice = Sizes(parse(EVEN)).lattice({"h": (1, 64), "w": (1, 64)})
    asked = {"h": size, "w": size}
    for up, wanted in ((None, nearest), (True, above), (False, below)):
        assert lattice.rounded(asked, up=up) == {"h": wanted, "w": wanted}


def test_tied_sizes_are_rounded_together_the_larger_of_two() -> None:
    text = """g (float[1,1,h,2] x, float[1,1,w,2] z) => (float[1,1,a,2] y, float[a,b,c,d] v)
        { y = Add (x, z)  v = SpaceToDepth <blocksize = 2> (x) }"""
    lattice = Sizes(parse(text)).lattice({"h": (2, 64), "w": (2, 64)})
    assert lattice.joint
    for size, nearest in ((4, 4), (5, 6), (7, 8)):
        assert lattice.rounded({"h": size, "w": size}, up=None) == {"h": nearest, "w": nearest}
    assert lattice.rounded({"h": 5, "w": 7}, up=True) == {"h": 8, "w": 8}
    assert lattice.rounded({"h": 5, "w": 7}, up=False) == {"h": 4, "w": 4}


def test_the_evidence_is_of_the_size_that_is_named() -> None:
    text = """g (float[1,1,h,w] x, float[1,1,3,v] z) => (float[a,b,c,d] y, float[e,f,g,i] u) {
        t = SpaceToDepth <blocksize = 2> (x)  y = SpaceToDepth <blocksize = 3> (x)
        u = SpaceToDepth <blocksize = 3> (z) }"""
    imposed = Sizes(parse(text)).lattice({"h": (6, 60), "w": (7, 60), "v": (20, 40)}).imposed
    assert [each.dims for each in imposed] == [("h",), ("h",), ("w",), ("w",), ("v",)]
    for each in imposed:
        size, _, block, named = map(int, re.findall(r"\d+", each.evidence))
        assert size == named and size % block
        assert each.needs == f"a multiple of {block}"
