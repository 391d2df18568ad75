"""Writes Fourier transforms as products with matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_MOST = 2**24
"""Elements of a matrix, at most."""


class FourierByMatrix(Spelling):
    """Writes DFT and STFT as MatMul, or as Conv, with the matrices of their cosines and sines.

    An STFT whose window is constant becomes a Conv, whatever the length of its signal; all else a MatMul, where lengths
    are known. TensorRT-RTX parses an STFT itself, with angles of float32: of 400 numbers, its cosines are off by 1e-4.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,1] x) => (float[1,2,2] y) { y = DFT <axis = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,1] x) => (float[1,2,2] y) <float[4,2] w = {1, 0, 1, 0, 1, 0, -1, 0}, int64[2] a = {1, 2},
        float[2,4] m = {1, 0, 1, 0, 1, 0, -1, 0}, int64[3] s = {1, 2, 2}>
        { v = Reshape (x, a)  p = MatMul (v, m)  y = Reshape (p, s) }
    """

    name = "fourier-by-matrix"
    ops = frozenset({"DFT", "STFT"})

    def write(self, writer: Writer, target: Target) -> str | None:
        if writer.node.op_type == "DFT":
            self._dft(writer)
        else:
            self._stft(writer)
        return None

    def _dft(self, writer: Writer) -> None:
        shape = writer.shape(writer.input(0))
        axes = self._axes(writer, shape)
        result = self._along(writer, axes[0])
        if len(axes) > 1:
            value = writer.cast(writer.input(2), np.int64)
            for axis in axes[1:]:
                hits = [writer("Equal", value, np.array(spelling, np.int64)) for spelling in (axis, axis - len(shape))]
                result = writer("Where", writer("Or", *hits), self._along(writer, axis), result)
        writer("Identity", result, to=writer.output())

    @staticmethod
    def _axes(writer: Writer, shape: tuple[int | None, ...]) -> list[int]:
        """Returns the axis, or those that it may be where it shows at run time."""
        rank = len(shape)
        if writer.opset < 20:
            return [writer.attrs.get("axis", 1) % rank]
        if not writer.input(2):
            return [rank - 2]
        axis = writer.resolve(writer.input(2))
        if axis is not None:
            return [int(axis.reshape(-1)[0]) % rank]
        after = writer.shape(writer.output())
        axes = [number for number in range(rank - 1) if not writer.input(1) and _fits(writer, shape, number, after)]
        if not axes:
            raise Unwritable("its axis is known only at run time")
        return axes

    def _along(self, writer: Writer, axis: int) -> str:
        """Writes the transform along one axis."""
        name = writer.input(0)
        shape, dtype = writer.shape(name), writer.dtype(name)
        size, parts = shape[axis], shape[-1]
        if size is None or parts is None:
            raise Unwritable(f"the size of axis {axis} is known only at run time")
        length = int(writer.values(1, "length").reshape(-1)[0]) if writer.input(1) else size
        backwards, onesided = bool(writer.attrs.get("inverse")), bool(writer.attrs.get("onesided"))
        rank = len(shape)
        if onesided and backwards:
            if parts != 2:
                raise Unwritable("half a spectrum has two parts")
            count = length if writer.input(1) else 2 * (size - 1)
            matrix = _from_half(size, count)
        else:
            matrix = _matrix(min(size, length), length, length // 2 + 1 if onesided else length, parts, backwards)
        if matrix.size > _MOST:
            raise Unwritable(f"its matrix would have {matrix.size} elements")
        used = matrix.shape[0]
        if used < size:
            name = writer.slice(name, [0], [used], [axis])
        order = [*(number for number in range(rank - 1) if number != axis), axis, rank - 1]
        moved = name if order == list(range(rank)) else writer("Transpose", name, perm=order)
        flat = writer.reshape(moved, [0] * (rank - 2) + [used * parts])
        product = writer("MatMul", flat, np.ascontiguousarray(matrix.reshape(used * parts, -1)).astype(dtype))
        whole = writer.reshape(product, [0] * (rank - 2) + [matrix.shape[2], matrix.shape[3]])
        back = np.argsort(order).tolist()
        return whole if back == list(range(rank)) else writer("Transpose", whole, perm=back)

    def _stft(self, writer: Writer) -> None:
        name = writer.input(0)
        _, size, *rest = writer.shape(name)
        parts = rest[0] if rest else 1
        if parts is None:
            raise Unwritable("whether its signal is complex is known only at run time")
        step = int(writer.values(1, "step").reshape(-1)[0])
        window = writer.input(2)
        if writer.input(3):
            length = int(writer.values(3, "length").reshape(-1)[0])
        elif window:
            (length,) = writer.sizes(window)
        elif size is None:
            raise Unwritable("the length of its signal is known only at run time")
        else:
            length = size
        count = length // 2 + 1 if writer.attrs.get("onesided", 1) else length
        matrix = _matrix(length, length, count, parts, backwards=False)
        weights = writer.resolve(window) if window else np.ones(length)
        if weights is not None:
            signal = writer("Transpose", name, perm=[0, 2, 1]) if rest else writer.unsqueeze(name, [1])
            self._strided(writer, signal, matrix * weights.reshape(length, 1, 1, 1), step)
        elif size is None:
            raise Unwritable("the length of its signal, and its window, are known only at run time")
        else:
            self._framed(writer, (length, step, (size - length) // step + 1), matrix)

    @staticmethod
    def _strided(writer: Writer, signal: str, matrix: NDArray[Any], step: int) -> None:
        """Writes the frames of a signal, [batch, parts, length], times a matrix as a convolution."""
        length, parts, count, _ = matrix.shape
        kernel = matrix.transpose(2, 3, 1, 0).reshape(count * 2, parts, length).astype(writer.dtype(writer.input(0)))
        spectra = writer("Conv", signal, kernel, strides=[step], kernel_shape=[length])
        writer.reshape(writer("Transpose", spectra, perm=[0, 2, 1]), [0, 0, count, 2], to=writer.output())

    @staticmethod
    def _framed(writer: Writer, framing: tuple[int, int, int], matrix: NDArray[Any]) -> None:
        """Writes the frames of a signal of known length, each times the window, as a product with a matrix."""
        length, step, frames = framing
        name, (_, parts, count, _) = writer.input(0), matrix.shape
        places = np.arange(frames)[:, None] * step + np.arange(length)
        # [batch, frames, length, parts]
        cut = writer("Gather", writer.reshape(name, [0, -1, parts]), places.astype(np.int64), axis=1)
        cut = writer("Mul", cut, writer.reshape(writer.input(2), [length, 1]))
        flat = writer.reshape(cut, [0, frames, length * parts])
        product = writer("MatMul", flat, matrix.reshape(length * parts, -1).astype(writer.dtype(name)))
        writer.reshape(product, [0, frames, count, 2], to=writer.output())


def _fits(writer: Writer, shape: Sequence[int | None], axis: int, after: Sequence[int | None]) -> bool:
    """Whether a transform along an axis may make a shape; a size that is not known may be any."""
    size = shape[axis]
    if size is not None and writer.attrs.get("onesided"):
        size = 2 * (size - 1) if writer.attrs.get("inverse") else size // 2 + 1
    whole = [*shape[:-1], None]
    whole[axis] = size
    return len(after) == len(shape) and all(
        None in pair or pair[0] == pair[1] for pair in zip(whole, after, strict=True)
    )


def _matrix(used: int, length: int, count: int, parts: int, backwards: bool) -> NDArray[Any]:
    """Returns what each of [used, parts] numbers adds to each of [count, 2]: float64."""
    turns = np.outer(np.arange(used), np.arange(count)) % length / length
    angles = 2 * np.pi * turns * (1 if backwards else -1)
    cosine, sine = np.cos(angles), np.sin(angles)
    whole = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
    shares: NDArray[Any] = (whole / length if backwards else whole)[:, :parts]
    return shares


def _from_half(size: int, count: int) -> NDArray[Any]:
    """Returns the same for the real signal that half a spectrum is of: [size, 2] to [count, 1]."""
    used = min(size, count // 2 + 1)
    turns = np.outer(np.arange(used), np.arange(count)) % count / count
    angles = 2 * np.pi * turns
    # All but the first, and the middle one of an even length, stand for their mirror images too.
    twice = np.full(used, 2.0)
    twice[0] = 1
    if count % 2 == 0 and used == count // 2 + 1:
        twice[-1] = 1
    whole = np.stack([np.cos(angles), -np.sin(angles)], 1) * twice[:, None, None] / count
    shares: NDArray[Any] = whole[..., None]
    return shares
