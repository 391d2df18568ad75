"""MatMulNBits of ONNX Runtime: a product with a weight of few bits, which blocks of it have scales for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.passes.spelling.fused_parts import option
from trtconv.passes.spelling.writer import Unwritable, Writer

_MOST = 2**26
"""Elements of a weight that is written in floats, at most."""
_BITS = (2, 4, 8)
_WEIGHT, _SCALES, _POINTS, _GROUPS, _BIAS = range(1, 6)


def matmul_of_blocks(writer: Writer) -> None:
    """Writes MatMulNBits as a product with the weight in floats; TensorRT-RTX has the operator's name alone."""
    columns, rows, bits = (option(writer, name, default) for name, default in (("N", 0), ("K", 0), ("bits", 4)))
    if bits not in _BITS or writer.input(_GROUPS):
        raise Unwritable(f"it has {bits} bits, or its rows are in another order")
    if columns * rows > _MOST:
        raise Unwritable(
            f"its weight has {columns * rows:,} elements, and would be written in floats: quantise it with "
            "quant_format=QDQ of onnxruntime's MatMulNBitsQuantizer, at opset 21"
        )
    scales = writer.values(_SCALES, "scales")
    scales = scales.reshape(columns, -1, 1)
    codes = _unpacked(writer.values(_WEIGHT, "weight").reshape(*scales.shape[:2], -1), bits)
    weight = (codes.astype(np.float32) - _points(writer, scales.shape[:2], bits)) * scales.astype(np.float32)
    matrix = weight.reshape(columns, -1)[:, :rows].T.astype(scales.dtype)
    bias = writer.input(_BIAS)
    product = writer("MatMul", writer.input(0), np.ascontiguousarray(matrix), to="" if bias else writer.output())
    if bias:
        writer("Add", product, bias, to=writer.output())


def _points(writer: Writer, shape: tuple[int, ...], bits: int) -> NDArray[np.float32]:
    """Returns the zero point of each block: (columns, blocks, 1)."""
    if not writer.input(_POINTS):
        return np.full((*shape, 1), 2 ** (bits - 1), np.float32)
    points = writer.values(_POINTS, "zero points")
    if points.dtype == np.uint8:
        points = _unpacked(points.reshape(shape[0], -1), bits)[:, : shape[1]]
    return points.reshape(*shape, 1).astype(np.float32)


def _unpacked(data: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Returns the codes in bytes, the lowest bits first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes: NDArray[np.uint8] = (data[..., None] >> shifts) & np.uint8(2**bits - 1)
    return codes.reshape(*data.shape[:-1], -1)
