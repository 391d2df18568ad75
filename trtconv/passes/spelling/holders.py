"""Which type that a target computes in holds every value of one that it lacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from trtconv.core.target import Target
from trtconv.passes.spelling.writer import Unwritable, Writer

_NARROW = {np.dtype(name): np.dtype(np.int32) for name in ("bool", "int8", "uint8", "int16", "uint16")}
_WIDE = np.dtype(np.int64)


def holder(dtype: np.dtype[Any], target: Target) -> np.dtype[Any]:
    """Returns the type of TensorRT that holds every value of an integer type.

    Raises:
        Unwritable: There is none.
    """
    if dtype in _NARROW:
        return _NARROW[dtype]
    # 8.6 divides int32 as floats, which is exact for narrow types alone.
    if dtype in (np.int32, np.int64) and not target.before(9):
        return dtype
    if dtype == np.uint32 and not target.before(9):
        return _WIDE
    raise Unwritable(f"no type that {target} computes in holds every value of {dtype}")


def widened(writer: Writer, name: str, target: Target) -> str:
    """Returns a tensor of the model cast to the type that holds it, or itself where that is its own."""
    dtype = writer.dtype(name)
    wide = holder(dtype, target)
    if wide == dtype:
        return name
    values = writer.scope.values(name)
    if values is not None:
        return writer.constant(values.astype(wide))
    if target.before(9) and dtype == np.uint8:
        # 8.6 casts bytes to floats alone.
        name = writer.cast(name, np.float32)
    return writer.cast(name, wide)


def wrapped(writer: Writer, name: str, dtype: np.dtype[Any], wide: np.dtype[Any]) -> str:
    """Returns a tensor of a wider type, its values wrapped around as the narrower type has them."""
    if dtype == wide or dtype.kind not in "iu":
        return name
    count = np.array(2 ** (8 * dtype.itemsize), wide)
    if dtype.kind == "u":
        return writer("Mod", name, count)
    half = np.array(2 ** (8 * dtype.itemsize - 1), wide)
    return writer("Sub", writer("Mod", writer("Add", name, half), count), half)


def narrowed(writer: Writer, name: str, to: str, dtype: np.dtype[Any], target: Target) -> None:
    """Casts a tensor, whose values the narrow type has, to that type."""
    if target.before(9) and dtype == np.uint8:
        name = writer.cast(name, np.float32)
    writer.cast(name, dtype, to=to)
    writer.mark_held()
