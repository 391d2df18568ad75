"""What a condition asks of a size, in words that are true of every size that was looked at."""

from __future__ import annotations

import numpy as np
import pytest

from trtconv.shapes.lattice.wording import listed, needs_in_part, periodic, regular

SIZES = np.arange(1, 65)


@pytest.mark.parametrize(
    ("accepts", "words"),
    [
        (lambda n: n % 8 == 0, "a multiple of 8"),
        (lambda n: n % 8 == 3, "a multiple of 8 plus 3"),
        (lambda n: n % 4 > 1, "2 to 3 beyond a multiple of 4"),
        (lambda n: (n % 7 == 0) | (n % 7 == 6), "0 to 1 below a multiple of 7"),
        (lambda n: (n % 9 == 1) | (n % 9 == 5), "1 or 5 beyond a multiple of 9"),
        (lambda n: (n % 12 != 5) & (n % 12 != 8), "not 5 or 8 beyond a multiple of 12"),
        (lambda n: (n % 8 == 0) & (n > 16), "a multiple of 8, at least 24"),
    ],
)
def test_what_repeats_is_told_by_its_residues(accepts, words: str) -> None:
    assert periodic(SIZES, accepts(SIZES)) == words
    assert regular(SIZES, accepts(SIZES)) == words


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
