"""An engine held against itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from trtconv.core.bounds import make_profile
from trtconv.core.dims import InputSpec, Range, ShapeProfile
from trtconv.engine.self_check import check_profiles, self_check, shared_shapes
from trtconv.runtimes.compare import TOLERANCES

TOLERANCE = TOLERANCES["float32"]
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def right(profile: int, feeds: dict[str, Any]) -> Mapping[str, Any]:
    return {"y": feeds["x"] * 2}


def profile(low: int, high: int) -> ShapeProfile:
    return make_profile([InputSpec("x", "float32", (3, "n"))], {"n": Range(low, low, high)})


def test_a_right_engine_agrees_with_itself() -> None:
    assert self_check(right, 0, {"x": X}, TOLERANCE) == []
    assert (
        check_profiles(right, [profile(2, 4), profile(4, 8)], lambda shapes: {"x": np.ones(shapes["x"])}, TOLERANCE)
        == []
    )


def test_results_that_change_are_found() -> None:
    calls: list[int] = []

    def drifting(index: int, feeds: dict[str, Any]) -> Mapping[str, Any]:
        calls.append(index)
        return {"y": feeds["x"] + len(calls)}

    found = self_check(drifting, 0, {"x": X[:1]}, TOLERANCE)
    assert [(each.check, each.output) for each in found] == [("twice", "y")]


def test_equal_rows_that_give_other_rows_are_found() -> None:
    def by_row(index: int, feeds: dict[str, Any]) -> Mapping[str, Any]:
        return {"y": feeds["x"] + np.arange(3, dtype=np.float32)[:, None], "one": np.ones((1, 2), np.float32)}

    found = self_check(by_row, 0, {"x": X}, TOLERANCE)
    assert [(each.check, each.output) for each in found] == [("rows", "y")]


def test_rows_that_the_model_itself_gives_differently_are_none_of_the_engines() -> None:
    def by_time(index: int, feeds: dict[str, Any]) -> Mapping[str, Any]:
        return {"y": np.cumsum(feeds["x"], axis=0)}

    assert [each.check for each in self_check(by_time, 0, {"x": X}, TOLERANCE)] == ["rows"]
    assert self_check(by_time, 0, {"x": X}, TOLERANCE, by_time) == []
    assert [each.check for each in self_check(by_time, 0, {"x": X}, TOLERANCE, right)] == ["rows"]


def test_a_size_that_two_profiles_give_differently_is_found() -> None:
    def by_profile(index: int, feeds: dict[str, Any]) -> Mapping[str, Any]:
        return {"y": feeds["x"] + index}

    found = check_profiles(by_profile, [profile(2, 4), profile(4, 8)], lambda s: {"x": np.ones(s["x"])}, TOLERANCE)
    assert [(each.check, each.output) for each in found] == [("profiles", "y")]


@pytest.mark.parametrize(("one", "two", "expected"), [((2, 4), (4, 8), 4), ((2, 8), (3, 5), 3), ((2, 3), (4, 8), None)])
def test_the_size_that_profiles_share(one: tuple[int, int], two: tuple[int, int], expected: int | None) -> None:
    shapes = shared_shapes(profile(*one), profile(*two))
    assert (None if shapes is None else shapes["x"][1]) == expected
