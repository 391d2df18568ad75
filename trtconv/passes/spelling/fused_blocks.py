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
    parts = [name for name in map(writer.input, (_WEIGHT, _SCALES, _POINTS)) if name]
    if all(writer.scope.values(name) is not None for name in parts):
        matrix: Any = _constant_matrix(writer, columns, rows, bits)
    else:
        matrix = _matrix_of_run_time(writer, columns, rows, bits)
    bias = writer.input(_BIAS)
    product = writer("MatMul", writer.input(0), matrix, to="" if bias else writer.output())
    if bias:
        writer("Add", product, bias, to=writer.output())


def _constant_matrix(writer: Writer, columns: int, rows: int, bits: int) -> NDArray[Any]:
    """Returns the weight in floats: (rows, columns)."""
    scales = writer.values(_SCALES, "scales")
    scales = scales.reshape(columns, -1, 1)
    codes = _unpacked(writer.values(_WEIGHT, "weight").reshape(*scales.shape[:2], -1), bits)
    weight = (codes.astype(np.float32) - _points(writer, scales.shape[:2], bits)) * scales.astype(np.float32)
    return np.ascontiguousarray(weight.reshape(columns, -1)[:, :rows].T.astype(scales.dtype))


def _matrix_of_run_time(writer: Writer, columns: int, rows: int, bits: int) -> str:
    """Writes the same of codes, scales or zero points that are inputs; returns the tensor (rows, columns)."""
    dtype, size = writer.dtype(writer.input(_SCALES)), option(writer, "block_size", 0)
    blocks = -(-rows // size)
    codes = writer.reshape(_bytes_unpacked(writer, _WEIGHT, columns, bits), [columns, blocks, size])
    points: Any = np.array(2 ** (bits - 1), np.float32)
    if writer.input(_POINTS):
        points = writer.cast_or_fold(writer.input(_POINTS), np.float32)
        if writer.dtype(writer.input(_POINTS)) == np.uint8:
            points = writer.slice(_bytes_unpacked(writer, _POINTS, columns, bits), [0], [blocks], [1])
        points = writer.reshape(points, [columns, blocks, 1])
    scales = writer.reshape(writer.cast_or_fold(writer.input(_SCALES), np.float32), [columns, blocks, 1])
    weight = writer.reshape(writer("Mul", writer("Sub", codes, points), scales), [columns, blocks * size])
    matrix = writer("Transpose", writer.slice(weight, [0], [rows], [1]), perm=[1, 0])
    return matrix if dtype == np.float32 else writer.cast(matrix, dtype)


def _bytes_unpacked(writer: Writer, slot: int, columns: int, bits: int) -> str:
    """Writes the codes of bytes, the lowest bits first, in floats: (columns, codes of one)."""
    left = writer.reshape(writer.cast_or_fold(writer.input(slot), np.float32), [columns, -1, 1])
    codes = []
    count, part = np.array(2**bits, np.float32), np.array(2.0**-bits, np.float32)
    for _ in range(8 // bits - 1):
        above = writer("Floor", writer("Mul", left, part))
        codes.append(writer("Sub", left, writer("Mul", above, count)))
        left = above
    return writer.reshape(writer("Concat", *codes, left, axis=2) if codes else left, [columns, -1])


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
