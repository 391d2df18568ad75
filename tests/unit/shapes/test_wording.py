"""What a condition asks of a size, in words that are true of every size that was looked at."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from trtconv.shapes.lattice.stretch import Pattern
from trtconv.shapes.lattice.wording import combination, listed, needs, needs_in_part, periodic, regular, relation

SIZES = np.arange(1, 65)


@pytest.mark.parametrize(
    ("accepts", "words"),
    [
        (lambda n: n % 8 == 0, "a multiple of 8"),
        (lambda n: n % 8 == 3, "a multiple of 8 plus 3"),
        (lambda n: n % 4 > 1, "2 to 3 beyond a multiple of 4"),
        (lambda n: (n % 7 == 0) | (n % 7 == 6), "0 to 1 below a multiple of 7"),
        (lambda n: n % 2 == 1, "a multiple of 2 plus 1"),
        (lambda n: (n % 9 == 1) | (n % 9 == 5), "1 or 5 beyond a multiple of 9"),
        (lambda n: np.isin(n % 11, (1, 3, 5, 8)), "1 or 3 or 5 or 8 beyond a multiple of 11"),
        (lambda n: np.isin(n % 9, (1, 3, 5, 6, 8)), "not 0 or 2 or 4 or 7 beyond a multiple of 9"),
        (lambda n: (n % 12 != 5) & (n % 12 != 8), "not 5 or 8 beyond a multiple of 12"),
        (lambda n: (n % 8 == 0) & (n > 16), "a multiple of 8, at least 24"),
    ],
)
def test_what_repeats_is_told_by_its_residues(accepts, words: str) -> None:
    assert periodic(SIZES, accepts(SIZES)) == words
    assert regular(SIZES, accepts(SIZES)) == words


@pytest.mark.parametrize(
    ("accepts", "words"),
    [
        (lambda n: n > 99, "a size outside those that were asked about"),
        (lambda n: n == 17, "17"),
        (lambda n: n == 1, "1"),
        (lambda n: n <= 20, "at most 20"),
        (lambda n: n >= 60, "at least 60"),
        (lambda n: (n >= 7) & (n <= 9), "7 to 9"),
        (lambda n: (n >= 63) & (n <= 64), "at least 63"),
        (lambda n: n % 8 == 0, "a multiple of 8"),
        (lambda n: np.isin(n, [3, 4, 7, 50]), "one of 3, 4, 7, 50"),
    ],
)
def test_what_a_condition_asks_of_a_size(accepts: Callable[[np.ndarray], np.ndarray], words: str) -> None:
    assert needs(SIZES, accepts(SIZES)) == words


@pytest.mark.parametrize(("most", "words"), [(50, "3, 4, 7, 50"), (49, "3, 4, 7"), (4, "3, 4"), (3, "3, 4, 7, 50")])
def test_a_list_ends_where_sizes_are_of_no_interest(most: int, words: str) -> None:
    assert needs(SIZES, np.isin(SIZES, [3, 4, 7, 50]), most) == f"one of {words}"


@pytest.mark.parametrize(
    ("small", "words"),
    [([1], "1"), ([1, 2, 3], "1 to 3"), ([2, 3], "2 to 3"), ([1, 3], "1, 3"), ([1, 2, 5], "1, 2, 5")],
)
def test_small_sizes_beside_a_rule_are_told_apart(small: list[int], words: str) -> None:
    sizes = np.arange(1, 4096)
    accepted = np.isin(sizes, small) | ((sizes >= 16) & (sizes % 8 == 0))
    assert regular(sizes, accepted) == f"{words} or, from 16 on, a multiple of 8"


def test_what_does_not_repeat_is_not_told_as_if_it_did() -> None:
    squares = np.isin(SIZES, [n * n for n in range(1, 9)])
    assert periodic(SIZES, squares) is None
    # One size beside a rule is enough.
    spoiled = SIZES % 8 == 0
    spoiled[50] = True
    assert periodic(SIZES, spoiled) is None


def test_the_ends_of_a_range_are_told() -> None:
    sizes, run = np.array([1, 2, 3, 10, 20]), slice(0, 3)
    assert needs_in_part(sizes, sizes <= 3, run) == "less than 10"
    assert needs_in_part(sizes, sizes <= 2, run) == "at most 2"
    assert needs_in_part(sizes, sizes >= 10, run) == "more than 3"
    assert needs_in_part(sizes, sizes >= 2, run) == "at least 2"
    assert "outside" in needs_in_part(sizes, sizes < 0, run)
    assert needs_in_part(sizes, np.isin(sizes, [1, 10]), slice(3, 5)).startswith("one of 1, 10")


@pytest.mark.parametrize(
    ("count", "text"), [(1, "8"), (6, "8, 9, 10, 11, 12, 13"), (7, "8, 9, 10, 11, 12, ... 14 (7 sizes)")]
)
def test_a_long_list_shows_its_ends(count: int, text: str) -> None:
    assert listed(range(8, 8 + count)) == text


def holds(said: str, **sizes: int) -> bool:
    """Whether two sizes fit what is said of them."""
    text = said.removesuffix(" (or one of them 1)")
    return bool(eval(text, {"floor": math.floor, "ceil": math.ceil}, sizes)) or (text != said and 1 in sizes.values())


RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "the same": lambda a, b: a == b,
    "more": lambda a, b: a == b + 3,
    "less": lambda a, b: a == b - 2,
    "times": lambda a, b: a == 3 * b,
    "times and less": lambda a, b: a == 4 * b - 3,
    "times and more": lambda a, b: 2 * a + 1 == b,
    "floor": lambda a, b: a == b // 4,
    "floor the other way": lambda a, b: a // 7 == b,
    "ceil": lambda a, b: a == -(-b // 5),
    "ceil the other way": lambda a, b: -(-a // 3) == b,
    "floors of both": lambda a, b: a // 4 == b // 4,
    "floors of both, of two divisors": lambda a, b: a // 8 == b // 3,
    "floors of both, of a larger second divisor": lambda a, b: a // 3 == b // 8,
    "broadcast": lambda a, b: a == b or 1 in (a, b),
}


@pytest.mark.parametrize("most", [40, 90])
@pytest.mark.parametrize("name", RELATIONS)
def test_what_is_said_of_two_dimensions_is_true_of_them_and_of_no_other_pair(name: str, most: int) -> None:
    related = RELATIONS[name]
    pairs = [(a, b) for a in range(1, most) for b in range(1, most) if related(a, b)]
    columns = {"a": np.array([a for a, _ in pairs]), "b": np.array([b for _, b in pairs])}
    (said,) = relation(columns)
    assert "tied" not in said
    wrong = [(a, b) for a in range(1, most) for b in range(1, most) if holds(said, a=a, b=b) != related(a, b)]
    assert not wrong, said


def test_of_one_row_the_size_itself_is_said() -> None:
    assert relation({"a": np.array([5]), "b": np.array([7])}) == ["a == 5"]


def test_of_what_is_tied_without_a_rule_an_example_is_given() -> None:
    columns = {"a": np.array([8, 9, 17, 30, 31]), "b": np.array([30, 9, 8, 17, 2])}
    assert relation(columns) == ["a is tied to b (for example 17 with 8)"]


def test_a_few_rows_are_not_taken_for_a_rule() -> None:
    """What is true of the rows and of every other pair as well says nothing."""
    columns = {"a": np.array([8, 9, 17, 30]), "b": np.array([30, 9, 8, 17])}
    (said,) = relation(columns)
    assert "tied" in said
    three = relation({**columns, "c": columns["a"]})
    assert three[1] == "a == c"


def test_rows_that_lack_pairs_of_a_rule_are_not_said_to_have_them() -> None:
    pairs = [(a, b) for a in range(1, 30) for b in range(1, 30) if a // 4 == b // 4 and (a, b) != (9, 10)]
    (said,) = relation({"a": np.array([a for a, _ in pairs]), "b": np.array([b for _, b in pairs])})
    assert "floor" not in said


@pytest.mark.parametrize("head", [(), (3, 5)])
@pytest.mark.parametrize("tail", [(), (900,)])
@pytest.mark.parametrize("residues", [{0}, {5}, {1, 4}])
@pytest.mark.parametrize(("begin", "end"), [(8, 64), (9, 65), (16, 17)])
def test_sizes_of_a_pattern_are_those_that_it_accepts(
    head: tuple[int, ...], tail: tuple[int, ...], residues: set[int], begin: int, end: int
) -> None:
    pattern = Pattern(np.array([n in residues for n in range(7)]), begin, end, head, tail)
    inside = [n for n in range(begin, end + 1) if n % 7 in residues]
    assert list(pattern.sizes() or ()) == [*head, *inside, *tail]
    assert pattern.accepts(np.arange(begin, end + 1)).tolist() == [n in inside for n in range(begin, end + 1)]


def test_a_pattern_of_too_many_sizes_is_not_listed() -> None:
    assert Pattern(np.array([True, True]), 0, 10**9, (), ()).sizes() is None


GRID = {"a": np.repeat(np.arange(1, 13), 12), "b": np.tile(np.arange(1, 13), 12)}


@pytest.mark.parametrize(
    ("accepts", "words"),
    [
        (lambda a, b: a == b, "a == b"),
        (lambda a, b: (a == b) | (a == 1) | (b == 1), "a == b (or one of them 1)"),
        (lambda a, b: a * b == 12, "a * b == 12"),
        (lambda a, b: a * b == 121, "a * b == 121"),
        (lambda a, b: a * b % 7 == 0, "a * b is a multiple of 7"),
        (lambda a, b: a * b % 2 == 0, "a * b is a multiple of 2"),
        (lambda a, b: (a * b == 12) & (a != 3), "only some combinations of a and b (5 of 144 that were tried)"),
        (lambda a, b: a < b, "only some combinations of a and b (66 of 144 that were tried)"),
        (lambda a, b: a > 99, "only some combinations of a and b (0 of 144 that were tried)"),
    ],
)
def test_what_two_sizes_must_be_together(accepts: Callable[..., np.ndarray], words: str) -> None:
    assert combination(GRID, accepts(*GRID.values())) == words


def test_what_three_sizes_must_be_together() -> None:
    three = {"a": np.array([1, 2, 2, 3]), "b": np.array([1, 2, 3, 3]), "c": np.array([5, 3, 2, 3])}
    assert combination(three, np.array([False, True, True, False])) == "a * b * c == 12"
    assert combination(three, np.array([False, False, False, True])) == "a * b * c == 27"
