"""What BatchNormalization of constants comes to, and how far a parser may round it."""

import numpy as np
import pytest

from trtconv.runtimes.proof.batch_norm import folded


@pytest.mark.parametrize(("value", "is_near"), [(1.001, True), (1.002, True), (1.01, False), (-1, False)])
def test_normal_numbers_are_off_by_steps_of_their_type(value: float, is_near: bool) -> None:
    scale, _ = folded([np.array([number], np.float32) for number in (1, 0, 0, 1)], 0.0)
    assert scale.near(np.array([value], np.float16)).tolist() == [is_near]


def test_what_is_below_the_normal_numbers_of_a_type_has_the_steps_that_are_left() -> None:
    parameters = [np.array([number], np.float32) for number in (1, 6.19e-08, 0, 1)]
    _, shift = folded(parameters, 0.0)
    least = float(np.finfo(np.float16).smallest_subnormal)
    assert shift.near(np.array([least], np.float16)).all()
    assert not shift.near(np.array([8 * least], np.float16)).any()
    assert not shift.near(np.array([least], np.float32)).any()
