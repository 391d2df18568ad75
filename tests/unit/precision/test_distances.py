"""How sure a distance of two networks is, against the formula in NumPy and against what is drawn again."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trtconv.precision.quantize.measure import _Squares
from trtconv.precision.quantize.metrics import cosine


def squares_of(expected: list[np.ndarray], got: list[np.ndarray]) -> _Squares:  # type: ignore[type-arg]
    squares = _Squares()
    for pair in zip(expected, got, strict=True):
        squares.add(*pair)
    return squares


@pytest.mark.parametrize("count", [2, 3, 12])
@pytest.mark.parametrize("scale", [0.5, 20.0])
def test_the_standard_error_is_that_of_a_ratio_of_sums(count: int, scale: float) -> None:
    random = np.random.default_rng(count)
    expected = [scale * random.standard_normal(9) for _ in range(count)]
    got = [a + random.normal(0, 0.1 * (1 + n), 9) for n, a in enumerate(expected)]
    wrong = np.array([np.square(a - b).sum() for a, b in zip(expected, got, strict=True)])
    own = np.array([np.square(a).sum() for a in expected])
    ratio = wrong.sum() / own.sum()
    of_ratio = math.sqrt(np.square(wrong - ratio * own).sum() * count / (count - 1)) / own.sum()
    distance = squares_of(expected, got).distance()
    assert distance.rms == pytest.approx(math.sqrt(ratio))
    assert distance.standard_error == pytest.approx(of_ratio / (2 * math.sqrt(ratio)))


def test_the_standard_error_is_how_far_samples_drawn_again_lie_apart() -> None:
    random = np.random.default_rng(0)

    def drawn() -> tuple[float, float]:
        expected = list(3 * random.standard_normal((40, 20)))
        got = [a + random.normal(0, 0.3, 20) * random.uniform(0.2, 2) for a in expected]
        distance = squares_of(expected, got).distance()
        return distance.rms, distance.standard_error or 0.0

    rms, errors = np.array([drawn() for _ in range(200)]).T
    assert 0.7 < errors.mean() / rms.std() < 1.4


def test_shares_have_an_error_too_and_one_sample_none() -> None:
    expected = [np.arange(4), np.arange(4)]
    got = [np.arange(4), np.array([0, 1, 9, 9])]
    distance = squares_of(expected, got).distance()
    # Shares 0 and 1/2 of as many numbers: a mean of 1/4, each a quarter off.
    assert (distance.rms, distance.standard_error) == (0.25, pytest.approx(0.25))
    assert squares_of(expected[:1], got[:1]).distance().standard_error is None
    same = squares_of([np.ones(3)] * 3, [np.ones(3)] * 3).distance()
    assert (same.rms, same.standard_error) == (0.0, 0.0)


def test_a_cosine_is_1_at_most() -> None:
    random = np.random.default_rng(0)
    values = [random.standard_normal(50) for _ in range(200)]
    cosines = [cosine(a * 3, a) for a in values]
    assert max(cosines) <= 1 and min(cosines) > 1 - 1e-12
    assert cosine(np.zeros(2), np.ones(2)) == 0 and cosine(-np.ones(2), np.ones(2)) == pytest.approx(-1)
