"""Samples that mislead: constant, identical, outlying and infinite ones are named."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.core.documents.doubts import DoubtKind
from trtconv.core.errors import InputError
from trtconv.precision.quantize.facts import doubts_about, facts_of
from trtconv.precision.quantize.samples import InputSamples


def made(count: int, shape: tuple[int, ...] = (3, 4)) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for _ in range(count)]


def samples(arrays: list[np.ndarray], files: tuple[str, ...] = ()) -> InputSamples:
    return InputSamples([functools.partial(dict, x=each) for each in arrays], "all.npz", files)


def doubts(arrays: list[np.ndarray], files: tuple[str, ...] = ()) -> dict[DoubtKind, list[tuple[str, ...]]]:
    whole = samples(arrays, files)
    found: dict[DoubtKind, list[tuple[str, ...]]] = {}
    for each in doubts_about(whole.facts, whole.names):
        assert all(name in each.message for name in each.samples)
        found.setdefault(each.kind, []).append(each.samples)
    return found


def test_samples_that_are_like_each_other_raise_no_doubt() -> None:
    assert doubts(made(20)) == {}
    # Of one kind or another, but not outlying.
    assert doubts([each * (1 + number % 5) for number, each in enumerate(made(20))]) == {}


def test_each_is_named_by_its_file_or_its_number() -> None:
    arrays = made(8)
    arrays[1] = np.zeros((3, 4), np.float32)
    arrays[4] = arrays[2]
    arrays[6][1, 3] = -1e4
    assert doubts(arrays) == {
        DoubtKind.CONSTANT: [("all.npz, sample 2 of 8",)],
        DoubtKind.IDENTICAL: [("all.npz, sample 5 of 8",)],
        DoubtKind.OUTLYING: [("all.npz, sample 7 of 8",)],
    }
    files = tuple(f"{number}.npy" for number in range(8))
    assert doubts(arrays, files)[DoubtKind.OUTLYING] == [("6.npy",)]
    (outlying,) = (each for each in doubts_about(samples(arrays).facts, files) if each.kind is DoubtKind.OUTLYING)
    assert "-1e+04" in outlying.message and "[1, 3]" in outlying.message


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_an_infinite_value_is_told_by_file_and_place(value: float) -> None:
    array = made(1)[0]
    array[2, 1] = value
    with pytest.raises(InputError) as told:
        facts_of({"x": array}, "cats/7.npy")
    assert "cats/7.npy" in str(told.value) and "[2, 1]" in str(told.value)


def test_integers_of_which_all_are_the_same_raise_no_doubt() -> None:
    assert doubts([np.zeros(4, np.int64), np.ones(4, np.int64)]) == {}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_what_measures_is_never_what_calibrates(numbers: list[int]) -> None:
    whole = samples([np.full((2,), number, np.float32) for number in numbers]).distinct()
    assert sorted(int(each["x"][0]) for each in whole) == sorted(set(numbers))
    if len(whole) > 1:
        first, second = ({int(each["x"][0]) for each in part} for part in whole.parted(0.3))
        assert first and second and not first & second


def test_facts_of_a_part_are_those_of_the_whole_and_made_once() -> None:
    calls = []

    def make(number: int) -> dict[str, np.ndarray]:
        calls.append(number)
        return {"x": np.array([number, 0.5], np.float32)}

    whole = InputSamples([functools.partial(make, number) for number in range(6)], "made")
    digest = whole.digest()
    first, second = whole.distinct().parted(0.5)
    assert (first.digest(), second.digest(), digest) == (first.digest(), second.digest(), whole.digest())
    assert first.sizes() == whole.sizes() == [{"x": (2,)}]
    assert sorted(calls) == list(range(6))
    assert {first.digest(), second.digest(), digest}.__len__() == 3


def test_samples_of_bfloat16_are_told_apart() -> None:
    values = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert facts_of({"x": values}, "a").sha256 == facts_of({"x": values.copy()}, "b").sha256
    assert facts_of({"x": values}, "a").sha256 != facts_of({"x": -values}, "c").sha256


@pytest.mark.parametrize(("factor", "outlying"), [(9.9, 0), (10.1, 1)])
def test_outlying_is_what_is_ten_times_as_large_as_usual(factor: float, outlying: int) -> None:
    arrays = [np.array([1.0, -2.0, 0.5], np.float32)] * 4 + [np.array([0.5, -2.0 * factor, 1.0], np.float32)]
    assert len(doubts(arrays).get(DoubtKind.OUTLYING, [])) == outlying
    # Beside zeros everything would be outlying; a single number is no constant.
    zeros = [np.array([0.0], np.float32)] * 3 + [np.array([5.0], np.float32)]
    assert set(doubts(zeros)) == {DoubtKind.IDENTICAL}


@pytest.mark.parametrize(("count", "more"), [(8, ""), (9, " and 1 more"), (12, " and 4 more")])
def test_eight_samples_are_named(count: int, more: str) -> None:
    arrays = [np.full(3, number, np.float32) for number in range(1, count + 1)]
    files = [f"{number}.npy" for number in range(count)]
    facts = samples(arrays).facts
    (doubt,) = (each for each in doubts_about(facts, files) if each.kind is DoubtKind.CONSTANT)
    assert doubt.message.endswith(f"{', '.join(files[:8])}{more}") and doubt.samples == tuple(files)


def test_every_input_of_floats_has_its_largest_value() -> None:
    facts = facts_of({"a": np.arange(3), "b": np.array([1, -2], np.float32), "c": np.zeros(0), "d": np.ones(1)}, "s")
    assert {name: (each.value, each.place) for name, each in facts.largest.items()} == {"b": (-2, (1,)), "d": (1, (0,))}
    assert facts.constant == () and facts.shapes == {"a": (3,), "b": (2,), "c": (0,), "d": (1,)}
