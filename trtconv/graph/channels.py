"""Weights of Conv and ConvTranspose, channel by channel: (C_out, C_in/group, k...) and (C_in, C_out/group, k...)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def times_outputs(weight: NDArray[Any], factors: NDArray[Any], op: str, groups: int) -> NDArray[Any]:
    """Returns a weight whose output channels are multiplied.

    Args:
        factors: One for each of the C_out channels.
        op: "Conv" or "ConvTranspose".
        groups: Number of groups.
    """
    if op == "Conv":
        result = weight * factors.reshape(-1, *[1] * (weight.ndim - 1))
    else:
        inside = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        result = inside * factors.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
    multiplied: NDArray[Any] = result.reshape(weight.shape).astype(weight.dtype, copy=False)
    return multiplied


def by_input(weight: NDArray[Any], op: str, groups: int) -> NDArray[Any] | None:
    """Returns a view of a weight as (C_out, C_in, taps); None for groups that are neither one nor depthwise.

    Depthwise it is (1, C_in, taps): each input channel has a filter of its own.
    """
    if groups == 1:
        both = weight if op == "Conv" else weight.swapaxes(0, 1)
        return both.reshape(*both.shape[:2], -1)
    if weight.shape[1] == 1 and weight.shape[0] == groups:
        return weight.reshape(1, groups, -1)
    return None


def times_inputs(weight: NDArray[Any], factors: NDArray[Any], op: str, groups: int) -> NDArray[Any]:
    """Returns a weight whose input channels are multiplied; groups as for `by_input`."""
    axis = 1 if op == "Conv" and groups == 1 else 0
    shape = [-1 if index == axis else 1 for index in range(weight.ndim)]
    multiplied: NDArray[Any] = (weight * factors.reshape(shape)).astype(weight.dtype, copy=False)
    return multiplied


def relative_inputs(weight: NDArray[Any], op: str, groups: int) -> NDArray[np.float64] | None:
    """Returns how much each input channel weighs, at most, beside the others of the same output: 0 to 1."""
    view = by_input(weight, op, groups)
    if view is None:
        return None
    largest = np.maximum(view.max(axis=2), -view.min(axis=2)).astype(np.float64)
    widest = largest.max(axis=1, keepdims=True)
    ratios: NDArray[np.float64] = np.divide(largest, widest, out=np.zeros_like(largest), where=widest > 0).max(axis=0)
    return ratios
