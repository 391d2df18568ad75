"""ScatterND, and ScatterElements with its reductions (TensorRT 10). Source of the second: its page, release 10.13."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def scatter_nd(data: Array, indices: Array, updates: Array, **_: Any) -> Array:
    """Writes slices of `updates` over those of `data` that the last axis of `indices` names."""
    result: Array = data.copy()
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result


_SUMS = {"sum": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "mean": np.add}


def scatter_elements(
    data: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: Any = "none", **_: Any
) -> Array:
    """Writes each of `updates` where `indices` says on an axis, or reduces it with what is there."""
    result: Array = data.astype(np.float64) if data.dtype.kind == "f" else data.copy()
    places: list[Array] = list(np.indices(indices.shape))
    places[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
    word = reduction.decode() if isinstance(reduction, bytes) else reduction
    if word in ("none", ""):
        result[tuple(places)] = updates
        return result.astype(data.dtype)
    _SUMS[word].at(result, tuple(places), updates)
    if word == "mean":
        counts = np.ones(data.shape, np.int64)
        np.add.at(counts, tuple(places), 1)
        result = result / counts if data.dtype.kind == "f" else np.floor_divide(result, counts)
    return result.astype(data.dtype)


REFERENCES = {"ScatterND": scatter_nd, "ScatterElements": scatter_elements}
