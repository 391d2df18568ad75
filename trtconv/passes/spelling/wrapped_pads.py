"""A Pad with negative amounts, which crop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_PADS, _AXES = 1, 3
_END = np.iinfo(np.int64).max
_INPUTS_OPSET = 11
"""From which the amounts are an input."""


class CropBeforeWrap(Spelling):
    """Writes a Pad with negative amounts that wraps around, for TensorRT 8 any such, as a Slice and a Pad of the rest.

    ONNX Runtime wraps around what is left; TensorRT's parser goes around what was there before, and that of TensorRT 8
    refuses negative amounts.

    Before:
        <ir_version: 9, opset_import: ["": 19]>
        g (float[4] x) => (float[4] y) <int64[2] pads = {-1, 1}> { y = Pad <mode = "wrap"> (x, pads) }
    After:
        <ir_version: 9, opset_import: ["": 19]>
        g (float[4] x) => (float[4] y)
        <int64[1] a = {1}, int64[1] b = {9223372036854775807}, int64[1] axes = {0}, int64[2] pads = {0, 1}>
        { c = Slice (x, a, b, axes)  y = Pad <mode = "wrap"> (c, pads) }
    """

    name = "crop-before-wrap"
    ops = frozenset({"Pad"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return target.before(9) or any(attribute.s == b"wrap" for attribute in scope.columns.attributes[index])

    def write(self, writer: Writer, target: Target) -> str | None:
        is_old = writer.opset < _INPUTS_OPSET
        amounts = writer.attrs.get("pads") if is_old else writer.resolve(writer.input(_PADS))
        if amounts is None:
            raise Unwritable("" if target.before(9) else "its pads are known only at run time")
        pads = _amounts(amounts)
        if (pads >= 0).all():
            raise Unwritable
        axes: Sequence[int] = range(len(writer.scope.shape(writer.input(0)) or ()))
        if writer.input(_AXES):
            axes = [int(axis) for axis in writer.values(_AXES, "axes").reshape(-1)]
        _require_rest(writer, pads, axes)
        crops = np.minimum(pads, 0)
        cropped = np.flatnonzero(crops.any(0)).tolist()
        starts, ends = -crops[0], np.where(crops[1] < 0, crops[1], _END)
        whole = not (pads > 0).any()
        middle = writer.slice(
            writer.input(0),
            starts[cropped],
            ends[cropped],
            [axes[at] for at in cropped],
            to=writer.output() if whole else "",
        )
        rest = np.maximum(pads, 0).reshape(-1)
        if is_old and not whole:
            writer.again([middle], pads=rest.tolist())
        elif not whole:
            writer.again([middle, writer.constant(rest), *writer.node.input[2:]])
        return "what is cropped is cut off first"


def _amounts(amounts: Any) -> NDArray[np.int64]:
    """Returns how much is padded in front of each axis and behind it."""
    pads = np.asarray(amounts)
    if pads.ndim != 1 or pads.dtype.kind not in "iu" or pads.size % 2:
        raise Unwritable
    return pads.astype(np.int64).reshape(2, -1)


def _require_rest(writer: Writer, pads: NDArray[np.int64], axes: Sequence[int]) -> None:
    """Raises `Unwritable` where what is cropped of an axis is all of it, or may be: then amounts count together."""
    shape = writer.scope.shape(writer.input(0))
    if not shape or len(axes) != pads.shape[1] or not all(-len(shape) <= axis < len(shape) for axis in axes):
        raise Unwritable
    if len({axis % len(shape) for axis in axes}) != len(axes):
        raise Unwritable
    wraps = writer.attrs.get("mode") == "wrap"
    for axis, (front, behind) in zip(axes, pads.T.tolist(), strict=True):
        size, crop = shape[axis], -min(front, 0) - min(behind, 0)
        if crop and size is not None and crop >= size:
            raise Unwritable(f"it crops {crop} of the {size} elements along axis {axis}")
        if crop > 1 and size is None and max(front, behind) > 0 and not wraps:
            raise Unwritable(f"it crops and pads axis {axis}, whose size is known only at run time")
