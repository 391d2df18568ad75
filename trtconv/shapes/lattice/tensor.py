"""A tensor as the size lattice sees it: its shape, and its elements where they are few and known."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.shapes.lattice.number import Num, lift

MAX_ELEMENTS = 256
"""Elements up to this number are followed: shapes, sizes, pads and indices are that small."""

Elements = NDArray[Any]
"""An object array of `Num`, in the tensor's own shape."""
Reach = tuple[tuple[Num, Num], ...]
"""The smallest and the largest of all elements, or of those at each place of the last axis."""


@dataclasses.dataclass
class Tensor:
    """A tensor at every candidate size.

    Args:
        shape: Its dimensions; None where not even the rank is known.
        data: Its elements, or None.
        dtype: Its element type, or None where it is not known.
        reach: How far its elements reach where they are integers, not followed, and that is known.
    """

    shape: list[Num] | None
    data: Elements | None = None
    dtype: np.dtype[Any] | None = None
    reach: Reach | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions, where it is known."""
        assert self.shape is not None
        return len(self.shape)

    @property
    def is_known(self) -> bool:
        """Whether every size is known."""
        return self.shape is not None and all(num.is_known for num in self.shape)

    @property
    def elements(self) -> Any:
        """How many elements it has at every candidate, None where a size is not known."""
        # In floats: a product may be larger than integers go.
        if self.shape is None or not self.is_known:
            return None
        return math.prod((np.asarray(num.value, np.float64) for num in self.shape), start=np.float64(1))

    @property
    def ints(self) -> list[int] | None:
        """Its elements as integers where all are the same at every candidate."""
        if self.data is None or not all(num.constant for num in self.data.flat):
            return None
        return [int(num.value) for num in self.data.flat]

    @property
    def nums(self) -> list[Num] | None:
        """Its elements, flat; unknown ones where only their number is known; None where not even that is."""
        if self.data is not None:
            return list(self.data.flat)
        if (
            self.shape is not None
            and len(self.shape) == 1
            and self.shape[0].constant
            and 0 <= self.shape[0].value <= MAX_ELEMENTS
        ):
            return [Num(None) for _ in range(int(self.shape[0].value))]
        return None

    @classmethod
    def of_array(cls, values: NDArray[Any]) -> Tensor:
        """Makes a tensor of constant values; large ones are kept as a shape."""
        shape = [Num(n) for n in values.shape]
        if values.size > MAX_ELEMENTS or values.dtype.kind not in "iufb":
            return cls(shape, None, values.dtype)
        return cls(shape, boxed(_nums(values), values.shape), values.dtype)

    @classmethod
    def of_nums(cls, nums: Sequence[Num]) -> Tensor:
        """Makes a vector of int64."""
        return cls([Num(len(nums))], boxed(nums, (len(nums),)), np.dtype(np.int64))


def _nums(values: NDArray[Any]) -> list[Num]:
    if values.dtype.kind == "f":
        return [Num(value) for value in values.ravel()]
    return [lift(value) for value in values.ravel()]


def boxed(nums: Iterable[Num], shape: Sequence[int]) -> Elements:
    """Puts numbers into an object array of a shape."""
    flat = list(nums)
    data = np.empty(len(flat), dtype=object)
    for index, num in enumerate(flat):
        data[index] = num
    return data.reshape(tuple(shape))


def map_elements(function: Callable[..., Num], *operands: Elements) -> Elements:
    """Applies a function of numbers elementwise, with broadcasting."""
    result = np.frompyfunc(function, len(operands), 1)(*operands)
    return result if isinstance(result, np.ndarray) else boxed([result], ())
