"""How the elements of a tensor lie in memory, for each of TensorRT's formats.

Source: TensorRT's documentation of `TensorFormat`. Every format but the linear one has the channels last, or in vectors
of a fixed length which come last; both are padded with zeros. The channels are the third axis from the end, of formats
with a D the fourth.
"""

from __future__ import annotations

import math

import numpy as np

from trtconv.core.errors import InputError
from trtconv.graph.arrays import Array

_VECTORS = {"CHW2": (3, 2), "CHW4": (3, 4), "CHW16": (3, 16), "CHW32": (3, 32), "CDHW32": (4, 32)}
"""Format to the axis of the channels from the end, and the length of a vector of them."""
_LAST = {"HWC": (3, 1), "HWC8": (3, 8), "HWC16": (3, 16), "DHWC": (4, 1), "DHWC8": (4, 8)}
"""Format to the axis of the channels from the end, and what their number is padded to a multiple of."""


def stored_shape(shape: tuple[int, ...], form: str) -> tuple[int, ...]:
    """Returns the sizes of what lies in memory, row after row.

    Args:
        shape: Of the tensor.
        form: TensorRT's name of the format.

    Raises:
        InputError: The tensor has too few axes, or the format is not known here.
    """
    if form == "LINEAR":
        return shape
    axis, multiple = _geometry(shape, form)
    channels = math.ceil(shape[axis] / multiple)
    rest = (*shape[:axis], *shape[axis + 1 :])
    if form in _LAST:
        return (*rest, channels * multiple)
    return (*shape[:axis], channels, *shape[axis + 1 :], multiple)


def pack(values: Array, form: str) -> Array:
    """Returns the elements of a tensor as a format has them.

    Args:
        values: The tensor.
        form: TensorRT's name of the format.
    """
    if form == "LINEAR":
        return np.ascontiguousarray(values)
    axis, multiple = _geometry(values.shape, form)
    missing = -values.shape[axis] % multiple
    padded = np.pad(values, [(0, missing if index == axis else 0) for index in range(values.ndim)])
    if form in _LAST:
        return np.ascontiguousarray(np.moveaxis(padded, axis, -1))
    split = (*values.shape[:axis], -1, multiple, *values.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(padded.reshape(split), axis + 1, -1))


def unpack(stored: Array, shape: tuple[int, ...], form: str) -> Array:
    """Returns a tensor of what `pack` makes of it.

    Args:
        stored: What lies in memory, of `stored_shape`.
        shape: Of the tensor.
        form: TensorRT's name of the format.
    """
    if form == "LINEAR":
        return stored
    axis, _ = _geometry(shape, form)
    if form in _LAST:
        padded = np.moveaxis(stored, -1, axis)
    else:
        vectors = np.moveaxis(stored, -1, axis + 1)
        padded = vectors.reshape((*shape[:axis], -1, *shape[axis + 1 :]))
    window = tuple(slice(shape[axis]) if index == axis else slice(None) for index in range(len(shape)))
    return np.ascontiguousarray(padded[window])


def _geometry(shape: tuple[int, ...], form: str) -> tuple[int, int]:
    """Returns the axis of the channels, and the length of a vector, or of what they are padded to."""
    layout = _VECTORS.get(form) or _LAST.get(form)
    if layout is None or len(shape) < layout[0]:
        raise InputError(
            f"a tensor of {len(shape)} axes in format {form.lower()} cannot be fed or read here",
            "Build the engine with another --io.",
        )
    return len(shape) - layout[0], layout[1]
