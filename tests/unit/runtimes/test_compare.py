"""The numbers that say how far two arrays are apart, held to NumPy on whole arrays."""

from __future__ import annotations

import dataclasses
import importlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from trtconv.core.documents.verify import Tolerance
from trtconv.runtimes.compare import TOLERANCES, compare, relative_error, same_network

compare_module = importlib.import_module("trtconv.runtimes.compare")
LOOSE = Tolerance(1e9, -1.0, 1.0)
FLOATS = st.floats(-1e6, 1e6, width=32)
PAIRS = npst.array_shapes(max_dims=3, max_side=6).flatmap(
    lambda shape: st.tuples(
        npst.arrays(np.float32, shape, elements=FLOATS), npst.arrays(np.float32, shape, elements=FLOATS)
    )
)


@given(PAIRS)
def test_numbers_are_those_of_whole_arrays(pair: tuple[np.ndarray, np.ndarray]) -> None:
    expected, got = pair
    found = compare("y", expected, got, LOOSE)
    a, b = expected.astype(np.float64), got.astype(np.float64)
    assert found.max_abs == np.abs(a - b).max()
    peak = np.abs(a).max()
    assert found.max_rel == pytest.approx(found.max_abs / peak) if peak else found.max_rel in (0.0, math.inf)
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    if norms > 1e-100:
        assert found.cosine == pytest.approx((a * b).sum() / norms, abs=1e-9)
    mean = ((a - b) ** 2).mean()
    if mean and peak:
        assert found.psnr == pytest.approx(10 * math.log10(peak**2 / mean), abs=1e-6)
    assert found.mismatches == (np.abs(a - b) > LOOSE.relative * peak).mean()


@given(PAIRS, st.integers(1, 7))
def test_chunks_change_nothing(pair: tuple[np.ndarray, np.ndarray], size: int) -> None:
    whole = compare("y", *pair, Tolerance(0.1, 0.9))
    before, compare_module._CHUNK = compare_module._CHUNK, size
    try:
        parts = compare("y", *pair, Tolerance(0.1, 0.9))
    finally:
        compare_module._CHUNK = before
    assert parts.passed == whole.passed
    for name in ("max_abs", "max_rel", "cosine", "psnr", "mismatches"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), abs=1e-9)


@given(npst.arrays(np.float32, npst.array_shapes(max_dims=3, max_side=6), elements=FLOATS))
def test_an_array_is_itself(values: np.ndarray) -> None:
    found = compare("y", values, values.copy(), Tolerance(0.0, 1 - 1e-12))
    assert found.passed
    assert (found.max_abs, found.max_rel, found.mismatches, found.psnr) == (0, 0, 0, math.inf)


ONE = np.array([1.0, -2.0, 3.0, 4.0], np.float32)


def test_the_tolerance_is_of_the_largest_magnitude() -> None:
    off = ONE + np.float32([0.0, 0.0, 0.2, 0.0])
    assert compare("y", ONE, off, Tolerance(0.06, 0.0)).passed
    found = compare("y", ONE, off, Tolerance(0.04, 0.0))
    assert not found.passed
    assert found.mismatches == 0.25
    assert found.why.startswith("1 of 4 elements (25%) are further off")
    assert compare("y", ONE, off, Tolerance(0.04, 0.0, 0.25)).passed


def test_the_cosine_counts_too() -> None:
    found = compare("y", ONE, -ONE, Tolerance(10.0, 0.9))
    assert (found.passed, found.cosine) == (False, -1.0)
    assert "cosine" in found.why


def changed(index: int, value: float) -> np.ndarray:
    copy = ONE.copy()
    copy[index] = value
    return copy


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite(value: float) -> None:
    broken = compare("y", ONE, changed(1, value), LOOSE)
    assert not broken.passed
    assert "1 of 4 elements are NaN or infinite" in broken.why
    same = compare("y", changed(1, value), changed(1, value), Tolerance(0.0, 0.9))
    assert same.passed
    other = compare("y", changed(1, value), ONE, Tolerance(0.0, 0.9))
    assert (other.passed, other.mismatches) == (False, 0.25)
    nothing = compare("y", np.full(3, value), np.full(3, value), LOOSE)
    assert "shows nothing" in nothing.why


def test_infinities_of_another_sign_differ() -> None:
    assert not compare("y", changed(1, math.inf), changed(1, -math.inf), Tolerance(0.0, 0.9)).passed


def test_shapes_and_kinds() -> None:
    assert "its shape is 4 instead of 2x2" in compare("y", ONE.reshape(2, 2), ONE, LOOSE).why
    assert compare("y", ONE, ONE.astype(np.float16), Tolerance(1e-3, 0.999)).passed
    assert compare("y", np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), LOOSE).passed
    assert "no such output" in compare("y", ONE, None, LOOSE).why
    assert compare("y", ["a"], ["a"], LOOSE).passed
    assert not compare("y", ["a"], ["b"], LOOSE).passed


def test_integers_are_equal_or_not() -> None:
    expected = np.array([1, 2, 300], np.int64)
    assert compare("y", expected, expected.astype(np.int32), Tolerance(0.5, 0.0)).passed
    assert not compare("y", expected, expected + np.array([0, 0, 1]), Tolerance(0.5, 0.0)).passed
    assert compare("y", np.array([True]), np.array([True]), Tolerance(0.5, 0.0)).passed


def test_zeros_are_only_zeros() -> None:
    zeros = np.zeros(4, np.float32)
    assert compare("y", zeros, zeros, Tolerance(0.0, 1.0)).passed
    found = compare("y", zeros, changed(0, 1e-3), Tolerance(0.5, 0.0))
    assert (found.passed, found.max_rel, found.psnr) == (False, math.inf, -math.inf)


@pytest.mark.parametrize("name", TOLERANCES)
def test_no_default_lets_a_shifted_signal_pass(name: str) -> None:
    signal = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
    assert not compare("y", signal, np.roll(signal, 1, axis=3), TOLERANCES[name]).passed
    one_wrong = signal.copy()
    one_wrong[0, 0, 0, 0] += 0.5 * np.abs(signal).max()
    assert not compare("y", signal, one_wrong, TOLERANCES[name]).passed


def test_json_has_every_number() -> None:
    document = compare("y", ONE, ONE, LOOSE).to_json()
    assert set(document) == {f.name for f in dataclasses.fields(compare_module.Difference)} | {"passed"}


def test_relative_error_is_of_the_largest_magnitude() -> None:
    expected = np.array([0.0, 1.0, -4.0], np.float32)
    assert relative_error(expected, np.array([1.0, 1.0, -4.0], np.float32)) == 0.25
    assert relative_error(expected, expected) == 0.0
    # What is not finite in both alike is no difference, and no magnitude.
    infinite = np.array([np.inf, 2.0, np.nan], np.float32)
    assert relative_error(infinite, np.array([np.inf, 3.0, np.nan], np.float32)) == 0.5


SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 3e38, -3e38, 1e-40, math.nan, math.inf, -math.inf])


@given(st.data(), st.sampled_from(["f4", "f8", "i4", "u1"]), st.sampled_from([0.0, 1.0]), st.integers(1, 7))
def test_relative_error_is_that_of_its_definition(data: st.DataObject, dtype: str, step: float, chunk: int) -> None:
    """Element by element: NaN and infinities must be the same, all else is held against the largest magnitude."""
    element = SPECIAL if dtype[0] == "f" else st.integers(0, 9)
    pairs = data.draw(st.lists(st.tuples(element, element) | element.map(lambda each: (each, each)), min_size=1))
    with np.errstate(over="ignore"):
        expected, got = (np.array(each, dtype) for each in zip(*pairs, strict=True))
    a, b = expected.astype(float), got.astype(float)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
        wanted = math.inf
    else:
        peak, gap = (float(np.abs(each).max(initial=0.0)) for each in (a[finite], a[finite] - b[finite]))
        gap = 0.0 if gap <= step * (1 + 1e-3) else gap
        wanted = gap / peak if peak else (math.inf if gap else 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_module, "_CHUNK", chunk)
        assert relative_error(expected, got, step) == wanted


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (np.zeros(3, np.float32), np.zeros(3, np.float64)),
        (np.zeros((1, 3), np.float32), np.zeros((3, 1), np.float32)),
        (np.array([1.0, 2.0], np.float32), np.array([1.0, np.nan], np.float32)),
        (np.array([1.0, np.nan], np.float32), np.array([1.0, 2.0], np.float32)),
        (np.array(["a"]), np.array(["b"])),
        (["a"], ["b"]),
    ],
)
def test_relative_error_of_what_cannot_be_compared_is_infinite(expected: Any, got: Any) -> None:
    assert relative_error(expected, got) == math.inf
    assert relative_error(expected, expected if isinstance(expected, list) else expected.copy()) in (0.0, math.inf)


def test_what_is_no_array_is_the_same_or_not() -> None:
    assert relative_error(["a"], ["a"]) == 0.0
    assert relative_error(np.array(["a"]), np.array(["a"])) == 0.0
    assert relative_error(np.zeros(0, np.float32), np.zeros(0, np.float32)) == 0.0


def test_a_step_of_a_quantiser_is_no_error_and_more_than_one_is() -> None:
    expected, step = np.array([10.0, 0.0], np.float32), 0.1
    for off in (step, step * 1.0005):
        assert relative_error(expected, np.array([10.0, off], np.float32), step) == 0.0
    assert relative_error(expected, np.array([10.0, step * 1.01], np.float32), step) == pytest.approx(0.0101)
    assert relative_error(expected, np.array([10.0, step], np.float32)) == pytest.approx(0.01)


def test_a_step_comes_on_top_of_the_tolerance() -> None:
    expected, tolerance = np.array([10.0, 0.0], np.float32), Tolerance(0.01, 0.5)
    within, beyond = np.array([10.0, 0.14], np.float32), np.array([10.0, 0.16], np.float32)
    assert compare("y", expected, within, tolerance, 0.05).passed
    assert not compare("y", expected, within, tolerance).passed
    assert not compare("y", expected, beyond, tolerance, 0.05).passed


def test_the_share_of_wrong_elements_counts_all_kinds_once() -> None:
    expected = np.array([1.0, 1.0, 1.0, np.inf, np.inf, 1.0, 1.0, 1.0], np.float32)
    got = np.array([1.0, np.nan, 2.0, np.inf, 1.0, 1.0, 1.0, 1.0], np.float32)
    # One NaN for a number, one number that is off, and one infinity that is gone.
    found = compare("y", expected, got, Tolerance(1e-3, 0.0))
    assert found.mismatches == 3 / 8
    off = compare("y", np.ones(4, np.float32), np.array([1, 1, 1, 2], np.float32), Tolerance(1e-3, 0.0))
    assert "1 of 4" in off.why
    assert "25%" in off.why


@pytest.mark.parametrize("name", TOLERANCES)
def test_every_default_lets_pass_what_is_the_same(name: str) -> None:
    values = np.linspace(-1, 1, 99, dtype=np.float32)
    assert compare("y", values, values, TOLERANCES[name]).passed


def test_two_networks_are_the_same_up_to_their_coarsest_type() -> None:
    limits = [same_network([each], False) for each in ("double", "float", "float16", "bfloat16")]
    assert limits == sorted(limits)
    assert limits[0] < 1e-6
    assert same_network(["double", "int64", "float16"], False) == limits[2]
    assert same_network(["int64"], False) == limits[1]
    assert same_network(["double"], True) == TOLERANCES["int8"].relative
    assert same_network(["bfloat16"], True) == limits[3]


@pytest.mark.parametrize("name", TOLERANCES)
def test_every_default_minds_many_small_values_of_the_other_sign(name: str) -> None:
    """Each is within the tolerance of the largest magnitude; together they turn the result, up to the cosine."""
    tolerance = TOLERANCES[name]
    small = 0.1 * tolerance.relative
    own = (1 - tolerance.cosine) / (1 + tolerance.cosine)
    for turned, passes in ((0.5 * own, True), (2 * own, False), (max(2 * own, min(0.01, 1e6 * small**2)), False)):
        # A peak of 1 beside n values e, and -e: their cosine is (1 - n e^2) / (1 + n e^2), 0.98 at most.
        values = np.concatenate([[1.0], np.full(math.ceil(turned / small**2), small)])
        other = np.concatenate([[1.0], -values[1:]])
        assert compare("y", values, other, tolerance).passed == passes


def test_fewer_wrong_elements_than_are_allowed_pass() -> None:
    for allowed, passes in ((0.2, False), (0.25, True), (0.5, True)):
        assert compare("y", ONE, changed(2, 9.0), Tolerance(0.1, -1.0, allowed)).passed == passes


def test_numbers_of_nothing_and_of_zeros() -> None:
    empty = compare("y", np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), LOOSE)
    zeros = compare("y", np.zeros(2, np.float32), np.zeros(2, np.float32), LOOSE)
    for found in (empty, zeros):
        assert (found.max_abs, found.max_rel, found.cosine, found.psnr, found.mismatches) == (0, 0, 1, math.inf, 0)
    for pair in ((np.zeros(4, np.float32), ONE), (ONE, np.zeros(4, np.float32))):
        assert compare("y", *pair, LOOSE).cosine == 0


@pytest.mark.parametrize("of", ["expected", "got", "both"])
def test_numbers_are_those_of_the_elements_that_are_finite(of: str) -> None:
    some, off = np.array([1.0, 2.0, 3.0], np.float32), np.array([1.0, 2.0, 2.0], np.float32)
    expected = np.append(some, np.float32(math.inf if of != "got" else 1.0))
    got = np.append(off, np.float32(math.inf if of != "expected" else 1.0))
    found, alone = compare("y", expected, got, LOOSE), compare("y", some, off, LOOSE)
    for name in ("max_abs", "max_rel", "cosine", "psnr"):
        assert getattr(found, name) == pytest.approx(getattr(alone, name))
