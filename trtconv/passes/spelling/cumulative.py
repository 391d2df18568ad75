"""Writes cumulative products as few products of shifted tensors."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer


class CumulativeProduct(Spelling):
    """Writes CumProd as products of the tensor with itself, shifted by 1, 2, 4 and so on.

    Before:
        <ir_version: 13, opset_import: ["": 26]>
        g (float[2] x) => (float[2] y) <int64 axis = {0}> { y = CumProd (x, axis) }
    After:
        <ir_version: 13, opset_import: ["": 26]>
        g (float[2] x) => (float[2] y) <float[1] one = {1}, int64[1] a = {0}, int64[1] b = {1}>
        { h = Slice (x, a, b, a)  s = Concat <axis = 0> (one, h)  y = Mul (x, s) }
    """

    name = "cumulative-product"
    ops = frozenset({"CumProd"})

    def write(self, writer: Writer, target: Target) -> str | None:
        rank = len(writer.shape(writer.input(0)))
        axis = writer.resolve(writer.input(1))
        if axis is not None:
            product = _along(writer, int(axis.reshape(-1)[0]) % rank)
        else:
            # Which axis it is shows at run time: each is computed, one is taken.
            value = writer.cast(writer.input(1), np.int64)
            product = _along(writer, 0)
            for number in range(1, rank):
                hits = [writer("Equal", value, np.array(spelling, np.int64)) for spelling in (number, number - rank)]
                product = writer("Where", writer("Or", *hits), _along(writer, number), product)
        writer("Identity", product, to=writer.output())
        return None


def _along(writer: Writer, axis: int) -> str:
    """Writes the products along one axis."""
    product = writer.input(0)
    shape, dtype = writer.shape(product), writer.dtype(product)
    backwards, size = bool(writer.attrs.get("reverse")), shape[axis]
    if size is None:
        raise Unwritable(f"the size of axis {axis} of {product!r} is known only at run time")

    def shifted(name: str, by: int) -> str:
        begin, end = (by, size) if backwards else (0, size - by)
        rest = writer.slice(name, [begin], [end], [axis])
        if None in shape:
            pads = np.zeros((2, len(shape)), np.int64)
            pads[int(backwards), axis] = by
            return writer("Pad", rest, pads.reshape(-1), np.ones((), dtype))
        ones = np.ones([by if number == axis else other or 0 for number, other in enumerate(shape)], dtype)
        return writer("Concat", *([rest, ones] if backwards else [ones, rest]), axis=axis)

    if writer.attrs.get("exclusive"):
        product = shifted(product, 1)
    by = 1
    while by < size:
        product = writer("Mul", product, shifted(product, by))
        by *= 2
    return product
