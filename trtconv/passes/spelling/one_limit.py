"""A Clip of one limit, or of none, as what it picks by."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_FLOATS = ("float32", "float16", "bfloat16")


class PickByOneLimit(Spelling):
    """Writes a Clip without a lower limit as Min, and one without an upper limit as Max where that is no constant.

    TensorRT's parser writes the limit that is missing. In bfloat16, to which `--precision bf16` casts, it writes 0,
    which then is the most or the least of the result; in other types -infinity comes out as the lowest number. With a
    constant lower limit alone it makes an activation, which is right.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x) => (float[4] y) <float high = {1}> { y = Clip (x, , high) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x) => (float[4] y) <float high = {1}> { y = Min (x, high) }
    """

    name = "pick-by-one-limit"
    ops = frozenset({"Clip"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        tensor, low, high = (*columns.inputs[index], "", "")[:3]
        # Until opset 10 the limits are attributes.
        if columns.attributes[index] or (low and high) or scope.dtype(tensor) not in _FLOATS:
            return False
        # A limit of one axis would add it to a tensor without axes.
        limit = low or high
        return not (limit and scope.shape(limit) != ()) and not (low and scope.constant(low) is not None)

    def write(self, writer: Writer, target: Target) -> str | None:
        tensor, low, high = (writer.input(slot) for slot in range(3))
        limit = writer.resolve(low or high) if low or high else None
        if limit is not None and limit == (np.inf if low else -np.inf):
            # Of all numbers it leaves the largest or the lowest that there is, which ONNX has for the other limit.
            raise Unwritable
        op = "Max" if low else "Min" if high else "Identity"
        writer(op, *filter(None, (tensor, low or high)), to=writer.output())
        return None
