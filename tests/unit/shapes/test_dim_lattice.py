"""The accepted sizes of one dimension: what is one, what is nearest, and in which words they are said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.core.findings import Location
from trtconv.shapes.lattice.result import DimLattice, Imposed
from trtconv.shapes.lattice.wording import step_and_offset


def dim(valid: Sequence[int] | None, low: int, high: int, looked: tuple[int, ...] | None = None) -> DimLattice:
    step, offset = (1, 0) if valid is None else step_and_offset(np.array(valid, np.int64))
    around = range(low, high + 1) if valid is None else valid
    return DimLattice("h", low, high, step, offset, None if valid is None else tuple(valid), around, looked)


@pytest.mark.parametrize(
    ("valid", "low", "high", "words"),
    [
        (None, 3, 9, "every size from 3 to 9"),
        (None, 7, 7, "7"),
        ([], 3, 9, "no size from 3 to 9"),
        ([8], 1, 9, "8"),
        ([8, 16], 1, 20, "8, 16"),
        ([8, 16, 24], 1, 30, "multiples of 8 from 8 to 24"),
        ([9, 17, 25], 1, 30, "multiples of 8 plus 1 from 9 to 25"),
        ([3, 4, 5], 1, 30, "3 to 5"),
        ([2, 4, 8, 16], 1, 30, "2, 4, 8, 16"),
        ([2, 3, 5, 9, 17, 28], 1, 30, "2, 3, 5, 9, 17, 28"),
        ([2, 3, 5, 9, 17, 28, 30], 1, 30, "2, 3, 5, 9, 17, ... 30 (7 sizes)"),
    ],
)
def test_words(valid: list[int] | None, low: int, high: int, words: str) -> None:
    assert dim(valid, low, high).describe() == words


def test_words_of_what_only_repeats_or_was_looked_at_in_part() -> None:
    repeating = [n for n in range(6, 100) if n % 6 in (0, 1)]
    assert dim(repeating, 6, 99).describe() == "0 to 1 beyond a multiple of 6, from 6 to 97"
    late = [1, *range(16, 100, 4)]
    assert dim(late, 1, 99).describe() == "1 or, from 16 on, a multiple of 4, to 96"
    assert dim([8, 16], 1, 99, (7, 8, 16)).describe() == "8, 16 among the sizes from 1 to 99 that were looked at"
    assert dim([], 1, 99, (7, 9)).describe() == "none of the sizes from 1 to 99 that were looked at"


@given(st.sets(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 45))
def test_what_is_nearest(valid: set[int], size: int) -> None:
    lattice = dim(sorted(valid), 1, 40)
    below, above = lattice.nearest(size)
    assert below == max((n for n in valid if n <= size), default=None)
    assert above == min((n for n in valid if n >= size), default=None)
    assert lattice.accepts(size) == (size in valid)
    # The larger one of two that are as near.
    assert lattice.rounded(size, up=None) == min(valid, key=lambda n: (abs(n - size), -n))
    assert lattice.rounded(size, up=True) == (below if above is None else above)
    assert lattice.rounded(size, up=False) == (above if below is None else below)


def test_what_was_not_looked_at_may_be_accepted() -> None:
    lattice = dim([8, 16], 1, 99, (7, 8, 16))
    assert [lattice.accepts(n) for n in (7, 8, 16, 17, 6)] == [False, True, True, True, True]


def test_of_no_size_none_is_nearest() -> None:
    assert dim([], 1, 9).nearest(4) == (None, None)
    assert dim([], 1, 9).rounded(4, up=None) == 4


@pytest.mark.parametrize(("node", "named"), [("up", "Add up"), ("", "Add (node 3)")])
@pytest.mark.parametrize(("source", "line"), [("net.py:9", " (net.py:9)"), ("", "")])
def test_what_a_node_asks_in_words(node: str, named: str, source: str, line: str) -> None:
    place = Location(op="Add", node=node, index=3)
    assert str(Imposed(("h",), "even", "fails", place, source)) == f"{named}{line} needs h to be even: it fails"
    assert str(Imposed(("h", "w"), "h == w", "fails", place, source)) == f"{named}{line} needs h == w: it fails"


def test_a_rule_is_said_only_if_it_holds_for_all_sizes() -> None:
    repeating = [n for n in range(6, 100) if n % 6 in (0, 1)]
    for wrong in (98, 99):
        assert "multiple" not in dim([*repeating, wrong], 6, 99).describe()
