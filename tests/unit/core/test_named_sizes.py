"""What a size is of dimensions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.core.named_sizes import named_size

BASE = {"batch": 2, "height": 64, "width": 96}
POINTS = [BASE, {**BASE, "batch": 5}, {**BASE, "height": 32}, {**BASE, "height": 128}, {**BASE, "width": 160}]


def told(size: Callable[[dict[str, int]], int | None], points: list[dict[str, int]] = POINTS) -> int | str:
    return named_size([size(point) for point in points], points)


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (lambda p: 7, 7),
        (lambda p: p["height"], "height"),
        (lambda p: p["height"] // 8, "height/8"),
        (lambda p: 3 * p["height"] // 2, "3*height/2"),
        (lambda p: p["height"] * p["width"] // 64, "height*width/64"),
        (lambda p: p["batch"] * p["height"], "batch*height"),
        (lambda p: p["height"] // 4 + 2, "height/4 + 2"),
        (lambda p: 2 * p["width"] - 1, "2*width - 1"),
        (lambda p: p["height"] + p["width"], "?"),
        (lambda p: p["height"] ** 2, "?"),
        (lambda p: None, "?"),
        (lambda p: None if p["batch"] == 5 else 1, "?"),
    ],
)
def test_sizes_are_named(size: Callable[[dict[str, int]], int | None], said: int | str) -> None:
    assert told(size) == said


def test_nothing_is_said_that_one_of_the_points_refutes() -> None:
    points = [{"h": 8}, {"h": 16}, {"h": 24}]
    assert named_size([4, 8, 13], points) == "?"


def test_several_optima_that_differ_in_all_do_not_hide_the_dimension() -> None:
    points = [{"a": 2, "b": 3}, {"a": 5, "b": 7}, {"a": 4, "b": 3}, {"a": 2, "b": 9}]
    assert named_size([4, 10, 8, 4], points) == "2*a"


@given(st.integers(1, 9), st.integers(-5, 5), st.lists(st.integers(3, 500), min_size=3, max_size=6, unique=True))
def test_a_line_is_told_as_what_it_is(slope: int, rest: int, sizes: list[int]) -> None:
    points = [{"x": size} for size in sizes]
    said = named_size([slope * size + rest for size in sizes], points)
    assert isinstance(said, str)
    for size in sizes:
        assert eval(said, {"x": size}) == slope * size + rest
