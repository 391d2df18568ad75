"""How far one element of a piece may be off."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from trtconv.core.documents.verify import Verdict
from trtconv.runtimes.proof.tolerance import FACTOR, PERTURBATION, Arithmetic, Computed, eps_of, judge, reduced
from trtconv.runtimes.tensorrt.readback.records import ReadLayer
from trtconv.runtimes.tensorrt.readback.types import numpy_type

EXACTLY = Arithmetic(eps=2.0**-23, approximated=False, rough=0.0, placed=0.0)


@pytest.mark.parametrize(
    ("dtype", "expected", "got", "passes"),
    [
        # Beside others at the end of the type, infinity is a matter of the order of a sum.
        ("float32", [3e38, np.inf], [3e38, np.nan], True),
        ("float32", [3e38, -np.inf], [3e38, 7e37], True),
        ("float32", [1e30, np.inf], [1e30, np.nan], True),
        ("float32", [1e27, np.inf], [1e27, np.nan], False),
        ("float32", [3e37, 1.0], [3e37, np.nan], False),
        # Masks and logarithms of nothing are infinite among small numbers.
        ("float32", [3.0, -np.inf], [3.0, np.nan], False),
        ("float32", [3.0, -np.inf], [3.0, -1e30], False),
        # What a wider network still holds is infinite in the model.
        ("float16", [1.0, np.inf], [1.0, 70000.0], True),
        ("float16", [1.0, np.inf], [1.0, -70000.0], False),
        ("float16", [1.0, np.inf], [1.0, 3.0], False),
        ("float32", [1.0, np.inf], [1.0, 70000.0], False),
    ],
)
def test_infinities(dtype: str, expected: Sequence[float], got: Sequence[float], passes: bool) -> None:
    value: Any = np.array(expected, dtype)
    found = judge(Computed(value), np.array(got, np.float32), EXACTLY, {"x": np.ones(1, np.float32)})
    assert (found.verdict is Verdict.PASSED) is passes, found.why


UNIT = FACTOR * EXACTLY.eps
ALLOWANCES: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    # What else is known of [4, 0], how it is computed, on inputs up to 50, to how far the 4 may be off.
    "its own rounding": ({}, {}, UNIT * 4),
    "in another type": ({}, {"eps": 2.0**-10}, FACTOR * 2.0**-10 * 4),
    "terms": ({"terms": [-100.0, 9e9]}, {}, UNIT * 104),
    "terms that are no numbers": ({"terms": [np.nan, 9e9]}, {}, UNIT * 4),
    "terms that overflow": ({"terms": [np.inf, 9e9]}, {}, UNIT * 4),
    "terms of other elements": ({"terms": [100.0]}, {}, UNIT * 4),
    "condition": ({"moved": ([4.5, 9e9], [3.75, 0.0])}, {}, UNIT * (4 + 0.75 / PERTURBATION)),
    "condition without end": ({"moved": ([np.inf, 0.0],)}, {}, UNIT * 4),
    "condition of other elements": ({"moved": ([9.0],)}, {}, UNIT * 4),
    "approximated": ({}, {"approximated": True}, UNIT * 4 + 50e-6),
    "approximated in another type": (
        {},
        {"approximated": True, "eps": 2.0**-22},
        2 * (UNIT * 4 + 50e-6),
    ),
    "rough": ({}, {"rough": 1e-4}, UNIT * 4 + 4e-4),
    "places": ({}, {"placed": 3.0}, UNIT * 4 + EXACTLY.eps * 3 * 2 * 50),
}


@pytest.mark.parametrize(("known", "how", "allowed"), ALLOWANCES.values(), ids=ALLOWANCES)
def test_an_element_is_off_by_as_much_as_can_be_explained(
    known: dict[str, Any], how: dict[str, Any], allowed: float
) -> None:
    several = {name: [np.array(values) for values in known[name]] for name in ("moved",) if name in known}
    terms = {"terms": np.array(known["terms"])} if "terms" in known else {}
    reference = Computed(np.array([4.0, 0.0]), **terms, **several)
    arithmetic, feeds = dataclasses.replace(EXACTLY, **how), {"x": np.array([-50.0, np.inf]), "i": np.array([99])}
    for sign in (-1, 1):
        near, far = (
            judge(reference, np.array([4 + sign * share * allowed, 0]), arithmetic, feeds) for share in (0.9, 1.1)
        )
        assert (near.verdict, near.why, far.verdict) == (Verdict.PASSED, "", Verdict.BEYOND)


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e3, 1e30])
def test_numbers_of_any_size_are_off_by_their_own_rounding(size: float) -> None:
    value: Any = np.array([size, -size], np.float32)
    for units, verdict in ((7, Verdict.PASSED), (14, Verdict.PASSED), (18, Verdict.BEYOND), (1000, Verdict.BEYOND)):
        got = (value.astype(np.float64) * [1 + units * EXACTLY.eps, 1]).astype(np.float32)
        assert judge(Computed(value), got, EXACTLY, {}).verdict is verdict


@pytest.mark.parametrize(("off", "verdict"), [(16, Verdict.PASSED), (17, Verdict.BEYOND)])
def test_a_single_number_has_no_places_that_are_rounded(off: float, verdict: Verdict) -> None:
    value = np.array(1, np.float32)
    how = Arithmetic(2.0**-23, False, 0.0, 100.0)
    got = value + np.float32(off * 2.0**-23)
    assert judge(Computed(value), got, how, {"x": value}).verdict is verdict


def test_the_other_sign_is_no_rounding() -> None:
    value = np.array([1, -2], np.float32)
    assert judge(Computed(value), -value, EXACTLY, {"x": value}).verdict is Verdict.BEYOND
    found = judge(Computed(value), value.copy(), EXACTLY, {"x": value})
    assert (found.verdict, found.telling) == (Verdict.PASSED, 1)


@pytest.mark.parametrize("moved", [np.nan, np.inf])
def test_what_becomes_of_moved_inputs_counts_where_it_is_a_number(moved: float) -> None:
    value, got = np.float32([4, 1]), np.float32([4 * (1 + 15 * 2.0**-23), 1])
    known = Computed(value, moved=(np.float32([moved, 1]),))
    assert judge(known, got, EXACTLY, {"x": value}).verdict is Verdict.PASSED
    far = np.float32([4 * (1 + 18 * 2.0**-23), 1])
    assert judge(known, far, EXACTLY, {"x": value}).verdict is Verdict.BEYOND


def test_types_that_numpy_has_not_have_infinities_too() -> None:
    dtype = numpy_type("bfloat16")
    value, got = np.array([np.inf, 1], dtype), np.array([np.nan, 1], dtype)
    how = dataclasses.replace(EXACTLY, eps=2.0**-7)
    assert judge(Computed(value), got, how, {"x": np.ones(1, np.float32)}).verdict is Verdict.BEYOND


def test_inputs_are_moved_by_more_than_rounding_and_less_than_matters() -> None:
    assert 2.0**-20 < PERTURBATION < 2.0**-6


def test_functions_of_small_inputs_are_off_as_those_of_1() -> None:
    how = dataclasses.replace(EXACTLY, approximated=True)
    for off, verdict in ((0.9e-6, Verdict.PASSED), (1.1e-6, Verdict.BEYOND)):
        assert judge(Computed(np.zeros(1)), np.array([off]), how, {"x": np.full(1, 0.1)}).verdict is verdict


@pytest.mark.parametrize(
    ("dtype", "step"), [("float16", 6e-8), ("bfloat16", 1e-37), ("float32", 1e-37), ("float64", 1e-300)]
)
def test_zero_is_off_by_the_smallest_step_of_its_type(dtype: str, step: float) -> None:
    value: Any = np.zeros(2, numpy_type(dtype))
    for share, verdict in ((0.9, Verdict.PASSED), (1.2, Verdict.BEYOND)):
        assert judge(Computed(value), np.array([0, share * step]), EXACTLY, {}).verdict is verdict


@pytest.mark.parametrize(
    ("dtype", "value", "beside", "got", "verdict"),
    [
        # Either side of a step, or what lies near it, and nothing between.
        ("float32", [2.0, 1.0], [[3.0, 1.0], [2.0, 5.0]], [3.0, 5.0], Verdict.PASSED),
        ("float32", [2.0, 1.0], [[3.0, 1.0]], [3.0 + 1e-6, 1.0], Verdict.PASSED),
        ("float32", [2.0, 1.0], [[3.0, 1.0]], [2.5, 1.0], Verdict.BEYOND),
        ("float32", [2.0, 1.0], [[3.0]], [3.0, 1.0], Verdict.BEYOND),
        ("int64", [2, 1], [[3, 1]], [3, 1], Verdict.PASSED),
        ("int64", [2, 1], [[3, 1]], [2, 3], Verdict.BEYOND),
        # Integers are not rounded, however large.
        ("int64", [2**60, 1], [], [2**60 + 1, 1], Verdict.BEYOND),
        ("bool", [True, False], [], [True, True], Verdict.BEYOND),
        # Where the model is no number, any will do.
        ("float32", [np.nan, 1.0], [], [7.0, 1.0], Verdict.PASSED),
        ("float32", [1.0, 1.0], [], [np.nan, 1.0], Verdict.NOT_FINITE),
        ("float32", [1.0, 1.0], [], [np.nan, -np.inf], Verdict.NOT_FINITE),
        ("float32", [1.0, 1.0], [], [np.nan, 9.0], Verdict.BEYOND),
        ("float32", [np.inf, 1.0], [], [np.nan, np.nan], Verdict.BEYOND),
        ("float32", [1.0, 1.0], [], [[1.0, 1.0]], Verdict.SHAPE),
    ],
)
def test_verdicts(dtype: str, value: Any, beside: Any, got: Any, verdict: Verdict) -> None:
    reference = Computed(np.array(value, dtype), beside=[np.array(other, dtype) for other in beside])
    found = judge(reference, np.array(got, dtype), EXACTLY, {})
    assert found.verdict is verdict
    assert ("finite" in found.why) == (verdict is Verdict.NOT_FINITE)


def test_what_is_told_of_a_difference_is_its_place_and_how_much_of_the_model_is_numbers() -> None:
    value, got = np.ones((2, 3)), np.ones((2, 3))
    value[0, :2], got[1, 1:] = np.nan, (2.5, 9)
    found = judge(Computed(value), got, EXACTLY, {})
    assert found.telling == pytest.approx(4 / 6)
    assert {"2", "6", "1x1", "2.5", "1"} <= set(found.why.replace(",", " ").split())
    got[1] = 1
    assert judge(Computed(value), got, EXACTLY, {}).telling == pytest.approx(4 / 6)
    assert judge(Computed(np.array([1, 2])), np.array([1, 3]), EXACTLY, {}).telling == 1


@pytest.mark.parametrize(
    ("layers", "dtype", "changes"),
    [
        ([("REDUCE", "SUM")], "int32", True),
        ([("UNARY", "NEG"), ("REDUCE", "PROD")], "int64", True),
        ([("REDUCE", "MAX")], "int32", False),
        ([("ELEMENTWISE", "SUM")], "int32", False),
        ([("REDUCE", "SUM")], "float32", False),
    ],
)
def test_what_comes_of_sums_of_integers_that_overflow_is_left_open(
    layers: list[tuple[str, str]], dtype: str, changes: bool
) -> None:
    read = [ReadLayer(0, "l", kind, (0,), (1,), {"op": op}) for kind, op in layers]
    ends: Any = np.iinfo(dtype if changes else "int32")
    expected, got = np.array([ends.min, 5, ends.max, 7]).astype(dtype), np.array([1, 2, 3, 7])
    assert reduced(read, expected, got).tolist() == ([1, 5, 3, 7] if changes else expected.tolist())
    assert reduced(read, expected, got[:2]).tolist() == expected.tolist()


def test_a_piece_is_rounded_as_the_coarsest_of_its_floats() -> None:
    units = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    coarsest = 0.0
    for count, (dtype, unit) in enumerate(units.items()):
        coarsest = max(coarsest, unit)
        assert eps_of([dtype, "int8"]) == unit
        assert eps_of(list(units)[: count + 1]) == coarsest
    assert eps_of(["int64"]) == units["float32"]
