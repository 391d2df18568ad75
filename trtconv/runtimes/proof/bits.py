"""Arrays compared bit by bit."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator

import numpy as np
import onnx

from trtconv.graph.arrays import Array
from trtconv.graph.external_data import EXTERNAL, is_whole, raw_chunks
from trtconv.graph.model import OnnxModel

_FEW = 1 << 12
"""Elements that are copied sooner than looked at in another way."""
_LEAST_BYTES = 1 << 16
"""To give back fewer takes longer than they are worth."""
_CHUNK = 1 << 18
"""Elements that are compared at a time: few enough for the processor's cache."""


def same_bits(one: Array | Iterable[Array], two: Array | Iterable[Array]) -> bool:
    """Whether two tensors hold the same bits in the same order, whatever their shapes.

    Args:
        one: An array, or its parts, flat, as `stored` yields them.
        two: Another, cast where the types differ.
    """
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray) and one.size == two.size <= _CHUNK:
        if one.dtype == two.dtype and one.size <= _FEW:
            return one.tobytes() == two.tobytes()
        return not one.size or _same(one.reshape(-1), two.reshape(-1))
    left, right = _parts(one), _parts(two)
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None:
        count = min(a.size, b.size)
        if not _same(a[:count], b[:count]):
            return False
        a = a[count:] if a.size > count else next(left, None)
        b = b[count:] if b.size > count else next(right, None)
    return a is None and b is None


def stored(model: OnnxModel, tensor: onnx.TensorProto) -> Array | Iterator[Array]:
    """Returns the values of a tensor; flat, a part at a time, where they lie in a file, which may have much of them.

    Raises:
        InputError: The values cannot be read.
    """
    if tensor.data_location != EXTERNAL or not is_whole(tensor.data_type):
        return model.array(tensor)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return (np.frombuffer(chunk, dtype) for chunk in raw_chunks(tensor, model.path))


def leave(values: Array) -> None:
    """Leaves values where they lie, if that is a file: what was read of it is no longer held, and read again when it is
    looked at again."""
    owner: object = values if values.nbytes > _LEAST_BYTES else None
    while isinstance(owner, np.ndarray):
        owner = owner.base
    mapping = owner.obj if isinstance(owner, memoryview) else owner
    if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def elements(values: Array) -> Array:
    """Returns the elements that are not zero, as unsigned integers in ascending order."""
    nonzero = _other_than_zero(values)
    nonzero.sort()
    return nonzero


def nonzero_count(values: Array) -> int:
    """Returns how many `elements` an array has."""
    return int(np.count_nonzero(values))


Fingerprint = tuple[int, int, int]


def fingerprint(values: Array) -> Fingerprint:
    """Returns what is equal for arrays with the same `elements`, without sorting.

    Returns:
        How many there are, their sum, and the sum of their squares, modulo 2^64.
    """
    nonzero = _other_than_zero(values).astype(np.uint64)
    return nonzero.size, int(nonzero.sum(dtype=np.uint64)), int(np.square(nonzero).sum(dtype=np.uint64))


def _other_than_zero(values: Array) -> Array:
    flat = np.ascontiguousarray(values).reshape(-1)
    return np.asarray(flat.view(f"u{flat.dtype.itemsize}")[np.asarray(flat != 0)])


def _parts(values: Array | Iterable[Array]) -> Iterator[Array]:
    """Yields flat parts of at least one element."""
    if isinstance(values, np.ndarray):
        flat = values.reshape(-1)
        return (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))
    return (part for part in values if part.size)


def _same(one: Array, two: Array) -> bool:
    if one.dtype != two.dtype:
        with np.errstate(all="ignore"):
            two = two.astype(one.dtype)
    return np.array_equal(_bytes(one), _bytes(two))


def _bytes(values: Array) -> Array:
    flat = np.ascontiguousarray(values)
    # Four at a time, where they are: it takes a third less.
    return flat.view(np.uint32) if flat.itemsize % 4 == 0 else flat.view(np.uint8)
