"""Arrays compared bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_CHUNK = 1 << 18
"""Elements that are compared at a time: few enough for the processor's cache."""


def same_bits(one: Array, two: Array) -> bool:
    """Whether two arrays hold the same bits in the same order, whatever their shapes.

    Args:
        one: An array.
        two: Another, cast where the types differ.
    """
    if one.size != two.size:
        return False
    one, two = one.reshape(-1), two.reshape(-1)
    for start in range(0, one.size, _CHUNK):
        a, b = one[start : start + _CHUNK], two[start : start + _CHUNK]
        if a.dtype != b.dtype:
            with np.errstate(all="ignore"):
                b = b.astype(a.dtype)
        if not np.array_equal(_bytes(a), _bytes(b)):
            return False
    return True


def elements(values: Array) -> Array:
    """Returns the elements that are not zero, as unsigned integers in ascending order."""
    flat = np.ascontiguousarray(values).reshape(-1)
    bits = flat.view(f"u{flat.dtype.itemsize}")
    kept = bits[np.asarray(flat != 0)]
    kept.sort()
    return np.asarray(kept)


def _bytes(values: Array) -> Array:
    return np.ascontiguousarray(values).view(np.uint8)
