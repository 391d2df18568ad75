"""Element types: what NumPy calls those of TensorRT, and how values go from one to another."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.runtimes.tensorrt.readback.records import NotProven

_FOREIGN = {
    "bfloat16": "bfloat16",
    "float8": "float8_e4m3fn",
    "float4": "float4_e2m1fn",
    "int4": "int4",
    "e8m0": "float8_e8m0fnu",
}
"""Types that ml_dtypes, on which onnx depends, adds to NumPy's."""
LARGEST = {"float8": 448.0, "float4": 6.0}
"""Largest magnitudes of the types that have no infinity."""


def numpy_name(name: str) -> str:
    """Returns what NumPy, or ml_dtypes, calls an element type of TensorRT."""
    return _FOREIGN.get(name, name)


@functools.cache
def numpy_type(name: str) -> np.dtype[Any]:
    """Returns the NumPy type for the name of an element type ("float32", "bfloat16", "int4").

    Raises:
        NotProven: There is none.
    """
    if name not in _FOREIGN:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise NotProven(f"NumPy has no {name} here") from error
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _FOREIGN[name]))
    return dtype


def cast(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Returns values in another type: rounded to the nearest even float, truncated to integers.

    Args:
        values: Any array; returned as it is where it has the type.
        name: Name of the type.

    Raises:
        NotProven: A value is beyond a type that has no infinity.
    """
    dtype = numpy_type(name)
    if values.dtype == dtype:
        return values
    if dtype.kind == "b":
        return np.asarray(wide(values) != 0)
    if name in LARGEST:
        floats = values.astype(np.float32)
        if not (np.abs(floats) <= LARGEST[name]).all():
            raise NotProven(f"TensorRT does not document what becomes of values beyond {LARGEST[name]:g} in {name}")
        return floats.astype(dtype)
    with np.errstate(all="ignore"):
        if is_foreign(values.dtype) and dtype.kind in "iu":
            return values.astype(np.float32).astype(dtype)
        return values.astype(dtype)


def is_foreign(dtype: np.dtype[Any]) -> bool:
    """Whether a type is one that NumPy alone does not know."""
    # NumPy finds out names in Python, and most types are its own.
    return dtype.kind == "V" or (dtype.isbuiltin != 1 and dtype.name in _FOREIGN.values())


def wide(values: NDArray[Any]) -> NDArray[Any]:
    """Returns values in a type that arithmetic is done in: float32 for narrower floats, others as they are."""
    if is_foreign(values.dtype) or values.dtype == np.float16:
        return values.astype(np.float32)
    return values


def unpack(raw: NDArray[np.uint8], count: int, name: str) -> NDArray[Any]:
    """Returns values that lie two in a byte, the first in the low half."""
    halves = np.stack([raw & 15, raw >> 4], -1).reshape(-1)[:count]
    if name == "int4":
        signed = halves.astype(np.int8)
        return np.where(signed > 7, signed - 16, signed).astype(numpy_type(name))
    return halves.view(numpy_type(name))
