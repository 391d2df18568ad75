"""Writes quantisers that TensorRT has no layer for in the arithmetic that ONNX defines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from trtconv.core.target import Target
from trtconv.graph.folding import FOLDED
from trtconv.graph.scope import Scope
from trtconv.graph.settled import is_settled
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_T = onnx.TensorProto
_HELD = frozenset({_T.INT8, _T.UINT8, _T.INT16, _T.UINT16})


class QuantizeInArithmetic(Spelling):
    """Writes quantisers with scales or zero points known only at run time, and those of 16 bits, as arithmetic.

    TensorRT's layers take constant scales, and zero points of 0. Where a network needs others, the numbers are those of
    ONNX; the operators around them run in float. TensorRT 8.6 casts no input of int8, but dequantises it. With a scale
    for each channel it quantises and dequantises what is no weight wrongly, along the last axis always and along the
    second one in some engines of a network (executed on 8.6.0).

    Before:
        <ir_version: 8, opset_import: ["": 13]>
        g (uint8[4] x, float s, uint8 z) => (float[4] y) { y = DequantizeLinear (x, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (uint8[4] x, float s, uint8 z) => (float[4] y)
        { a = Cast <to = 1> (x)  b = Cast <to = 1> (z)  c = Sub (a, b)  y = Mul (c, s) }
    """

    name = "quantize-in-arithmetic"
    fixes = ("TC304", "TC306", "TC307", "TC308", "TC615")
    ops = frozenset({"QuantizeLinear", "DequantizeLinear"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        columns = scope.columns
        inputs = columns.inputs[index]
        at_run_time = any(scope.constant(name) is None for name in inputs[1:] if name)
        narrow = inputs[0] if columns.ops[index] == "DequantizeLinear" else columns.outputs[index][0]
        if len(inputs) > 2 and inputs[2] and scope.dtype(inputs[2]) != scope.dtype(narrow):
            return False
        # What stands between quantisers of uint8 that passes before could make int8 is int8 by now.
        if scope.dtype(narrow) in ("int16", "uint16", "uint8") or _is_asymmetric(scope, inputs):
            return True
        return scope.constant(inputs[0]) is None and (at_run_time or _is_of_channels(scope, index, target))

    def write(self, writer: Writer, target: Target) -> str | None:
        if writer.attrs.get("block_size"):
            raise Unwritable("its scales are those of blocks")
        if writer.node.op_type == "DequantizeLinear":
            self._dequantize(writer, target)
        else:
            self._quantize(writer, target)
        return None

    def _dequantize(self, writer: Writer, target: Target) -> None:
        scale = writer.input(1)
        dtype, narrow = writer.dtype(scale), writer.dtype(writer.input(0))
        _integers(narrow)
        if target.before(9) and narrow == np.int8 and dtype == np.float32 and _is_input(writer.scope, writer.input(0)):
            steps = writer("DequantizeLinear", writer.input(0), np.float32(1), np.int8(0))
        else:
            steps = writer.cast_or_fold(writer.input(0), dtype)
        if writer.input(2):
            steps = writer("Sub", steps, _along(writer, writer.cast_or_fold(writer.input(2), dtype), 2))
        writer("Mul", steps, _along(writer, scale, 1), to=writer.output())

    def _quantize(self, writer: Writer, target: Target) -> None:
        real, scale = writer.input(0), writer.input(1)
        dtype, narrow = writer.dtype(real), writer.dtype(writer.output())
        limits = _integers(narrow)
        if dtype != writer.dtype(scale):
            scale = writer.cast_or_fold(scale, dtype)
        steps = writer("Round", writer("Div", real, _along(writer, scale, 1)))
        if writer.input(2):
            steps = writer("Add", steps, _along(writer, writer.cast_or_fold(writer.input(2), dtype), 2))
        cut = writer("Clip", steps, np.array(limits.min, dtype), np.array(limits.max, dtype))
        writer.cast(cut, narrow, to=writer.output())
        writer.mark_held()


def _is_asymmetric(scope: Scope, inputs: Sequence[str]) -> bool:
    """Whether a zero point is not 0 that the passes on quantisers, which run before, left."""
    point = scope.values(inputs[2]) if len(inputs) > 2 and inputs[2] else None
    return point is not None and point.dtype in (np.int8, np.uint8) and bool(np.any(point))


def _is_of_channels(scope: Scope, index: int, target: Target) -> bool:
    """Whether TensorRT 8.6 would quantise or dequantise what is no weight with a scale for each channel."""
    name, scale, *_ = scope.columns.inputs[index]
    values = scope.values(scale) if target.before(9) else None
    if values is None or values.size == 1:
        return False
    return not is_settled(scope, name, FOLDED | {"DequantizeLinear", "QuantizeLinear"})


def _is_input(scope: Scope, name: str) -> bool:
    """Whether a tensor is one of the network's inputs, or a copy of one."""
    if scope.parent is not None:
        return False
    while (node := scope.producer(name)) is not None and node.op_type == "Identity":
        name = node.input[0]
    return name in scope.input_names


def _integers(dtype: np.dtype[Any]) -> Any:
    if dtype.kind not in "iu" or dtype.itemsize > 2:
        raise Unwritable(f"{dtype} is not a type of integers that float32 holds")
    return np.iinfo(dtype)


def _along(writer: Writer, name: str, slot: int) -> str:
    """Returns a scale or zero point as it stands along its axis.

    Raises:
        Unwritable: It has another size than that axis.
    """
    shape = writer.shape(writer.input(slot))
    if len(shape) != 1 or shape == (1,):
        return name if not shape else writer.reshape(name, [])
    rank = len(writer.shape(writer.input(0)))
    axis = writer.attrs.get("axis", 1)
    if not -rank <= axis < rank:
        raise Unwritable(f"its scales are those of axis {axis}, of {rank}")
    size = writer.shape(writer.input(0))[axis]
    if len({size, *shape} - {None}) > 1:
        raise Unwritable(f"it has {shape[0]} scales for {size} channels of axis {axis}: give one for each")
    return writer.reshape(name, [-1 if number == axis % rank else 1 for number in range(rank)])
