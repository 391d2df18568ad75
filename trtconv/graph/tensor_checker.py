"""What a tensor of a file must be: sizes that can be counted, and as many values as they say. Looks at no values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import onnx
from onnx import TensorProto
from onnx.external_data_helper import uses_external_data

BITS = {
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 32),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL), 8),
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64, TensorProto.COMPLEX64), 64),
    TensorProto.COMPLEX128: 128,
    **dict.fromkeys((TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E8M0), 8),
    **dict.fromkeys((TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ), 8),
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1), 4),
    **dict.fromkeys((TensorProto.INT2, TensorProto.UINT2), 2),
}
"""Bits of one element, by element type; strings aside."""
_TYPED_DATA = {
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.COMPLEX64), "float_data"),
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.COMPLEX128), "double_data"),
    **dict.fromkeys((TensorProto.UINT32, TensorProto.UINT64), "uint64_data"),
    TensorProto.INT64: "int64_data",
}
"""The field that holds a tensor's values where they are not bytes; the other types have int32_data."""
MOST_DIMENSIONS = 32
"""NumPy's own limit, before version 2; TensorRT's is 8."""
MOST_ELEMENTS = 1 << 62
"""Elements of a tensor that can be counted in any language that reads ONNX."""


def nbytes(tensor: onnx.TensorProto) -> int:
    """Returns the bytes that a tensor's values take in raw_data or external data."""
    bits: int = math.prod(tensor.dims) * BITS.get(tensor.data_type, 0)
    return -(-bits // 8)


def sparse_faults(sparse: onnx.SparseTensorProto) -> Iterator[str]:
    """Finds what makes a sparse tensor unusable."""
    for part in (sparse.values, sparse.indices):
        yield from tensor_faults(part)
    if any(size < 0 for size in sparse.dims) or _is_beyond_counting(sparse.dims):
        yield f"tensor {sparse.values.name!r} has sizes that no tensor can have"


def _is_beyond_counting(dims: Sequence[int]) -> bool:
    """Whether a tensor has more dimensions or elements than anything can be done with."""
    if len(dims) > MOST_DIMENSIONS:
        return True
    return 0 not in dims and math.prod(dims) > MOST_ELEMENTS


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def tensor_faults(tensor: onnx.TensorProto) -> Iterator[str]:
    """Finds what makes a tensor unusable."""
    dims = tensor.dims
    label = f"tensor {tensor.name!r}"
    if any(size < 0 for size in dims):
        yield f"{label} has a negative size: {list(dims[:MOST_DIMENSIONS])}"
        return
    if _is_beyond_counting(dims):
        yield f"{label} has more dimensions or elements than a tensor can have"
        return
    elements = math.prod(tensor.dims)
    if tensor.data_type == TensorProto.STRING:
        if len(tensor.string_data) != elements:
            yield f"{label} holds {len(tensor.string_data)} strings, not {elements}"
        if not all(map(is_text, tensor.string_data)):
            yield f"{label} holds a text that is not UTF-8"
        return
    if tensor.data_type not in BITS:
        yield f"{label} has the unknown element type {tensor.data_type}"
        return
    if uses_external_data(tensor):
        return
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != nbytes(tensor):
            yield f"{label} holds {len(tensor.raw_data)} bytes, not {nbytes(tensor)}"
        return
    yield from _typed_data_faults(tensor, elements, label)


def _typed_data_faults(tensor: onnx.TensorProto, elements: int, label: str) -> Iterator[str]:
    count = len(getattr(tensor, _TYPED_DATA.get(tensor.data_type, "int32_data")))
    bits = BITS[tensor.data_type]
    # Types below a byte are packed; complex numbers are two entries each.
    packed = -(-elements * bits // 8) if bits < 8 else elements
    complex_types = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
    expected = 2 * elements if tensor.data_type in complex_types else packed
    if count != expected:
        yield f"{label} holds {count} values, not {expected}"
