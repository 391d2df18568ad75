"""The scale and the shift that BatchNormalization of constants comes to: TensorRT's parser makes one layer of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Array
from trtconv.runtimes.proof.bits import same_bits

_ROUNDING = 4
"""How many steps of its type a number may be off that is computed in that type and not in float64."""
_BFLOAT16_STEP = 2.0**-7


@frozen
class Folded:
    """Numbers that a parser computes of constants, in a type of its own.

    Args:
        values: What they are, in float64.
        magnitudes: How large the numbers are that each is made of: a difference is as exact as these.
    """

    values: Array
    magnitudes: Array

    def is_same(self, other: Folded) -> bool:
        """Whether others were made of the same numbers."""
        return same_bits(self.values, other.values) and same_bits(self.magnitudes, other.magnitudes)

    def near(self, values: Array) -> Array:
        """Returns which of as many values are these but for rounding in their own type; of infinite ones none are."""
        step, least = _BFLOAT16_STEP, 0.0
        if values.dtype.kind == "f":
            # Below its normal numbers a type has steps of one size: float16 of 6e-8.
            info = np.finfo(values.dtype)
            step, least = float(info.eps), float(info.smallest_subnormal)
        with np.errstate(invalid="ignore"):
            gaps = np.abs(values.astype(np.float64) - self.values)
        return np.asarray((gaps <= _ROUNDING * (step * self.magnitudes + least)) & np.isfinite(self.magnitudes))


def folded(parameters: Sequence[Array], epsilon: float) -> tuple[Folded, Folded]:
    """Returns the scale and the shift.

    Args:
        parameters: Scale, bias, mean and variance of the node.
        epsilon: What is added to the variance.
    """
    gamma, beta, mean, variance = (np.asarray(array, np.float64).reshape(-1) for array in parameters)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + epsilon)
        moved = mean * scale
        return Folded(scale, np.abs(scale)), Folded(beta - moved, np.abs(beta) + np.abs(moved))
