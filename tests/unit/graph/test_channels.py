"""Channels of weights: what is multiplied, and how much each input weighs."""

from __future__ import annotations

import numpy as np
import pytest

from trtconv.graph.channels import by_input, relative_inputs, times_inputs, times_outputs


@pytest.mark.parametrize(("op", "axis"), [("Conv", 1), ("ConvTranspose", 0)])
def test_inputs_of_one_group_are_multiplied_one_by_one(op: str, axis: int) -> None:
    weight = np.random.default_rng(0).normal(size=(3, 3, 2, 2)).astype(np.float32)
    factors = np.array([2, 3, 5], np.float32)
    made = times_inputs(weight, factors, op, 1)
    for channel, factor in enumerate(factors):
        assert np.array_equal(made.take(channel, axis), weight.take(channel, axis) * factor)


@pytest.mark.parametrize(("op", "axis"), [("Conv", 0), ("ConvTranspose", 1)])
def test_outputs_of_one_group_are_multiplied_one_by_one(op: str, axis: int) -> None:
    weight = np.random.default_rng(1).normal(size=(3, 3, 2)).astype(np.float32)
    factors = np.array([2, 3, 5], np.float32)
    made = times_outputs(weight, factors, op, 1)
    for channel, factor in enumerate(factors):
        assert np.array_equal(made.take(channel, axis), weight.take(channel, axis) * factor)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_what_an_input_weighs_is_its_largest_share_of_any_output(op: str) -> None:
    by_output = np.array([[[4.0, 1.0], [-2.0, 0.0]], [[0.0, 0.0], [0.0, 0.5]], [[1.0, 1.0], [0.25, 0.0]]])
    weight = by_output if op == "Conv" else by_output.swapaxes(0, 1)
    view = by_input(weight, op, 1)
    assert view is not None
    assert np.array_equal(view, by_output)
    # Of the outputs the first has shares 1 and 0.5, the second 0 and 1, the third 1 and 0.25.
    assert relative_inputs(weight, op, 1) == pytest.approx([1.0, 1.0])
    assert relative_inputs(weight[:1] if op == "Conv" else weight[:, :1], op, 1) == pytest.approx([1.0, 0.5])


def test_a_depthwise_filter_is_its_inputs_own_and_other_groups_have_no_view() -> None:
    weight = np.arange(6, dtype=np.float32).reshape(3, 1, 2)
    view = by_input(weight, "Conv", 3)
    assert view is not None
    assert view.shape == (1, 3, 2)
    assert by_input(np.zeros((4, 2, 3)), "Conv", 2) is None
    assert relative_inputs(np.zeros((4, 2, 3)), "Conv", 2) is None
    # An output that takes nothing of any input divides by nothing.
    assert relative_inputs(np.zeros((2, 2, 1)), "Conv", 1) == pytest.approx([0.0, 0.0])
