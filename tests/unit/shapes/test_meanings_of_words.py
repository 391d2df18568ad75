"""What is said of sizes, read back word by word, is true of exactly the sizes that it is said of."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest

from trtconv.shapes.lattice.result import DimLattice
from trtconv.shapes.lattice.solve import _dim
from trtconv.shapes.lattice.wording import combination, listed, needs, needs_in_part, periodic, regular, step_and_offset

Accepts = Callable[[int], bool]


def meant(said: str) -> Accepts:
    """Returns which sizes some words mean."""
    for pattern, meaning in MEANINGS:
        match = re.fullmatch(pattern, said)
        if match:
            return meaning(*(each and (int(each) if each.isdecimal() else each) for each in match.groups()))
    plain = [int(n) for n in said.removeprefix("one of ").split(", ")]
    return lambda n: n in plain


def first_few(few: str | int, first: int, rest: str, end: int | None) -> Accepts:
    some, others = meant(str(few)), meant(rest)
    return lambda n: some(n) or (first <= n <= (end or n) and others(n))


def within(inner: str, low: int, high: int) -> Accepts:
    accepts = meant(inner)
    return lambda n: accepts(n) and low <= n <= high


def multiples(period: int, plus: int | None, low: int | None, high: int | None) -> Accepts:
    return lambda n: n % period == (plus or 0) and (low or n) <= n <= (high or n)


def beside(first: int, last: int, where: str, period: int) -> Accepts:
    sign = 1 if where == "beyond" else -1
    return lambda n: first <= sign * n % period <= last


def residues(no: str | None, listed_ones: str | int, period: int) -> Accepts:
    wanted = [int(n) for n in str(listed_ones).split(" or ")]
    return lambda n: (n % period in wanted) != bool(no)


def beyond(how: str, bound: int) -> Accepts:
    return {
        "at least": lambda n: n >= bound,
        "at most": lambda n: n <= bound,
        "more than": lambda n: n > bound,
        "less than": lambda n: n < bound,
    }[how]


MEANINGS: list[tuple[str, Callable[..., Accepts]]] = [
    (r"(.+) or, from (\d+) on, (.+?)(?:, to (\d+))?", first_few),
    (r"(.+), from (\d+) to (\d+)", within),
    (r"(.+), at least (\d+)", lambda inner, low: within(inner, low, 10**9)),
    (r"(?:a )?multiples? of (\d+)(?: plus (\d+))?(?: from (\d+) to (\d+))?", multiples),
    (r"(\d+) to (\d+) (beyond|below) a multiple of (\d+)", beside),
    (r"(not )?([\d or]+) beyond a multiple of (\d+)", residues),
    (r"(?:every size from )?(\d+) to (\d+)", lambda low, high: lambda n: low <= n <= high),
    (r"(at least|at most|more than|less than) (\d+)", beyond),
]


def repeated(period: int, wanted: set[int], least: int) -> Accepts:
    return lambda n: n % period in wanted and n >= least


def rules() -> dict[str, Accepts]:
    """Sizes of many kinds, each a condition of its own."""
    found: dict[str, Accepts] = {}
    for period, wanted in (
        (2, {1}),
        (3, {0, 2}),
        (5, {0, 1}),
        (5, {3, 4}),
        (6, {1, 4}),
        (7, {0, 6}),
        (9, {0, 2, 4, 8}),
    ):
        found[f"{wanted} of {period}"] = repeated(period, wanted, 0)
        found[f"{wanted} of {period} from 17 on"] = repeated(period, wanted, 17)
    found["not 1 of 7"] = lambda n: n % 7 != 1
    found["not 1, 3, 5, 7 of 11"] = lambda n: n % 11 not in (1, 3, 5, 7)
    found["not 1, 3, 5, 7, 9 of 14"] = lambda n: n % 14 not in (1, 3, 5, 7, 9)
    found["at least 9"] = lambda n: n >= 9
    found["at most 40"] = lambda n: n <= 40
    found["9 to 40"] = lambda n: 9 <= n <= 40
    found["8 alone"] = lambda n: n == 8
    found["two"] = lambda n: n in (8, 31)
    found["squares"] = lambda n: n in (4, 9, 16, 25)
    found["1 or even"] = lambda n: n == 1 or n % 2 == 0
    found["up to 3 or by 8"] = lambda n: n <= 3 or (n % 8 == 0 and n >= 16)
    found["2 and 5 or by 4"] = lambda n: n in (2, 5) or (n % 4 == 0 and n >= 12)
    found["all"] = lambda n: True
    return found


RULES = rules()
RANGES = [(1, 96), (2, 65), (13, 90), (40, 41), (16, 400)]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("ends", RANGES)
def test_a_condition_on_one_size(name: str, ends: tuple[int, int]) -> None:
    sizes = np.arange(ends[0], ends[1] + 1)
    accepted = np.array([RULES[name](int(n)) for n in sizes])
    said = needs(sizes, accepted)
    if not accepted.any():
        assert "outside" in said
    elif "..." not in said:
        assert [meant(said)(int(n)) for n in sizes] == accepted.tolist(), said
    for pattern in (periodic(sizes, accepted), regular(sizes, accepted)) if accepted.any() else ():
        if pattern is not None:
            assert [meant(pattern)(int(n)) for n in sizes] == accepted.tolist(), pattern


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("ends", RANGES)
def test_the_sizes_of_a_dimension(name: str, ends: tuple[int, int]) -> None:
    low, high = ends
    around = [n for n in range(max(1, low - 20), high + 21) if RULES[name](n)]
    dim = _dim("h", ends, around)
    inside = [n for n in around if low <= n <= high]
    assert dim.valid == (None if len(inside) == high - low + 1 else tuple(inside))
    said = dim.describe()
    if not inside:
        assert said == f"no size from {low} to {high}"
    elif "..." not in said:
        assert [n for n in range(1, high + 21) if meant(said)(n)] == inside, said
    assert_moved(dim, around)


def assert_moved(dim: DimLattice, around: list[int]) -> None:
    """Compares the neighbours of each size with those that there are."""
    for size in range(1, dim.max + 30):
        below, above = [n for n in around if n <= size], [n for n in around if n >= size]
        assert dim.accepts(size) == (size in around)
        assert dim.nearest(size) == (max(below, default=None), min(above, default=None))
        either = min(around, key=lambda n: (abs(n - size), -n), default=size)
        assert dim.rounded(size, up=None) == either
        assert dim.rounded(size, up=True) == min(above, default=max(below, default=size))
        assert dim.rounded(size, up=False) == max(below, default=min(above, default=size))


@pytest.mark.parametrize(
    ("sizes", "step", "offset"),
    [
        ([], None, None),
        ([8], None, None),
        ([8, 16], 8, 0),
        ([9, 17, 33], 8, 1),
        ([3, 4], 1, 0),
        ([10, 16, 28], 6, 4),
    ],
)
def test_the_finest_grid(sizes: list[int], step: int | None, offset: int | None) -> None:
    assert step_and_offset(np.array(sizes, np.int64)) == (step, offset)


def test_a_list_goes_no_further_than_is_of_interest() -> None:
    sizes = np.arange(1, 40)
    accepted = np.isin(sizes, [4, 9, 16, 25, 36])
    assert needs(sizes, accepted, 20) == "one of 4, 9, 16"
    assert needs(sizes, accepted, 9) == "one of 4, 9"
    # One alone would be told as if it were the only one.
    assert needs(sizes, accepted, 8) == "one of 4, 9, 16, 25, 36"
    assert listed([1, 2, 3], 3) == "1, 2, 3"
    assert listed([1, 2, 3, 9], 3) == "1, 2, ... 9 (4 sizes)"


@pytest.mark.parametrize("bound", range(5, 60, 3))
@pytest.mark.parametrize("upwards", [True, False])
def test_a_bound_among_some_sizes(bound: int, upwards: bool) -> None:
    sizes = np.array([*range(4, 12), 20, 31, *range(44, 50), 80])
    accepted = sizes >= bound if upwards else sizes < bound
    said = meant(needs_in_part(sizes, accepted, slice(0, 8)))
    assert [said(int(n)) for n in sizes] == accepted.tolist()


def test_a_pattern_among_some_sizes() -> None:
    sizes, run = np.array([*range(8, 40), 50, 61, 64]), slice(0, 32)
    for period, plus in ((2, 1), (4, 0), (5, 3)):
        words = needs_in_part(sizes, sizes % period == plus, run)
        assert [meant(words)(int(n)) for n in sizes] == (sizes % period == plus).tolist()
    none = needs_in_part(sizes, np.isin(sizes, [50]), run)
    assert none.startswith("50 (of the sizes")


PAIRS = [*itertools.product(range(1, 17), repeat=2)]


@pytest.mark.parametrize(
    "accepts",
    [
        lambda h, w: h == w,
        lambda h, w: h == w or 1 in (h, w),
        lambda h, w: h * w == 12,
        lambda h, w: h * w == 16,
        lambda h, w: h * w % 6 == 0,
        lambda h, w: h * w % 8 == 0,
        lambda h, w: h + w == 9,
        lambda h, w: h * w == 11 * 13 * 17,
    ],
)
def test_a_condition_on_two_sizes(accepts: Callable[[int, int], bool]) -> None:
    columns = {name: np.array([pair[at] for pair in PAIRS]) for at, name in enumerate("hw")}
    accepted = np.array([accepts(h, w) for h, w in PAIRS])
    said = combination(columns, accepted)
    if match := re.fullmatch(r"only some combinations of h and w \((\d+) of (\d+) that were tried\)", said):
        assert (int(match[1]), int(match[2])) == (accepted.sum(), len(PAIRS))
        assert accepts(4, 5) or not accepted.any(), "nothing simpler can be said"
        return
    text = said.removesuffix(" (or one of them 1)").replace("is a multiple of ", "% ") + " == 0" * ("multiple" in said)
    holds = [bool(eval(text, {"h": h, "w": w})) or ("one of them 1" in said and 1 in (h, w)) for h, w in PAIRS]
    assert holds == accepted.tolist(), said


def test_a_condition_on_three_sizes() -> None:
    triples = [*itertools.product(range(1, 9), repeat=3)]
    columns = {name: np.array([triple[at] for triple in triples]) for at, name in enumerate("abc")}
    volume = columns["a"] * columns["b"] * columns["c"]
    assert combination(columns, volume == 24) == "a * b * c == 24"
    assert combination(columns, volume % 10 == 0) == "a * b * c is a multiple of 10"
    assert combination(columns, columns["a"] == columns["b"]).startswith(
        "only some combinations of a and b and c (64 of"
    )
