"""Which nodes a pattern means, and which of several is the nearest."""

from __future__ import annotations

import pytest

from trtconv.core.node_patterns import matches, nearest

UP = ("/decoder/up[0]/Softmax", "Softmax")


@pytest.mark.parametrize(
    ("pattern", "is_meant"),
    [
        ("/decoder/up[0]/Softmax", True),
        ("/decoder/*", True),
        ("/decoder/up[?]/*", True),
        ("*", True),
        ("/decoder/up0/*", False),
        ("decoder", False),
        ("/decoder/", False),
        ("type:Softmax", True),
        ("type:*max", True),
        ("type:Max", False),
        ("Softmax", False),
        ("/decoder/up.0./Softmax", False),
    ],
)
def test_a_pattern_means_names_or_operators(pattern: str, is_meant: bool) -> None:
    assert matches(pattern, *UP) == is_meant


def test_a_name_may_look_like_a_pattern() -> None:
    assert matches("a*", "a*", "Add") and nearest(["a*b", "a*"], "a*", "Add") == "a*"


@pytest.mark.parametrize(
    "order",
    [["*", "type:*", "type:Soft*", "type:Softmax", "/dec*", "/decoder/*", "/decoder/up*/Softmax", UP[0]]],
)
def test_the_nearest_counts_whatever_the_order(order: list[str]) -> None:
    for end in range(3, len(order) + 1):
        assert nearest(order[:end], *UP) == nearest(list(reversed(order[:end])), *UP) == order[end - 1]
    assert nearest(["type:Conv", "/encoder/*"], *UP) is None


def test_of_two_that_are_alike_the_later_counts() -> None:
    assert nearest(["/decoder/?p*", "/decoder/u?*"], *UP) == "/decoder/u?*"


def test_many_stars_take_no_longer_than_few() -> None:
    # By trying every place for every star it would take longer than the universe has.
    assert not matches("*a" * 40 + "b", "a" * 2000, "Add")
    assert matches("*a" * 40 + "*", "a" * 2000, "Add")
