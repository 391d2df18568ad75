"""Relu, Sign and Pow of integers, which some parsers have of floats alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.graph.types import INTEGERS, ONNX_DOMAINS
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_LARGEST_POWER = 8


class PickAboveZero(Spelling):
    """Writes Relu of int32 and int64 as the larger of its input and 0.

    TensorRT-RTX's parser refuses one of int32.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (int32[4] x) => (int32[4] y) { y = Relu (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (int32[4] x) => (int32[4] y) <int32 zero = {0}> { y = Max (x, zero) }
    """

    name = "pick-above-zero"
    ops = frozenset({"Relu"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return _reads_integers(scope, index)

    def write(self, writer: Writer, target: Target) -> str | None:
        tensor = writer.input(0)
        writer("Max", tensor, np.zeros((), writer.dtype(tensor)), to=writer.output())
        return None


class CompareForSign(Spelling):
    """Writes Sign of integers as whether they are above 0 less whether they are below, for TensorRT 8.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (int32[4] x) => (int32[4] y) { y = Sign (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (int32[4] x) => (int32[4] y) <int32 zero = {0}> {
          a = Greater (x, zero)  b = Cast <to = 6> (a)  c = Less (x, zero)  d = Cast <to = 6> (c)  y = Sub (b, d)
        }
    """

    name = "compare-for-sign"
    ops = frozenset({"Sign"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return target.before(9) and _reads_integers(scope, index)

    def write(self, writer: Writer, target: Target) -> str | None:
        tensor = writer.input(0)
        dtype = writer.dtype(tensor)
        zero = writer.constant(0, dtype)
        above, below = (writer.cast(writer(op, tensor, zero), dtype) for op in ("Greater", "Less"))
        writer("Sub", above, below, to=writer.output())
        return None


class MultiplyForPower(Spelling):
    """Writes small powers of integers as products, for TensorRT 8.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (int32[4] x) => (int32[4] y) <int32 three = {3}> { y = Pow (x, three) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (int32[4] x) => (int32[4] y) { a = Mul (x, x)  y = Mul (a, x) }
    """

    name = "multiply-for-power"
    ops = frozenset({"Pow"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return target.before(9) and _reads_integers(scope, index)

    def write(self, writer: Writer, target: Target) -> str | None:
        base, powers = writer.input(0), writer.values(1, "its exponent")
        power = powers.flat[0] if powers.size == 1 and powers.ndim <= len(writer.shape(base)) else 0
        if power not in range(2, _LARGEST_POWER + 1):
            raise Unwritable(f"its exponent is no whole number from 2 to {_LARGEST_POWER} alone")
        product = base
        for step in range(2, int(power) + 1):
            product = writer("Mul", product, base, to=writer.output() if step == power else "")
        return None


def _reads_integers(scope: Scope, index: int) -> bool:
    """Whether what a node reads first are integers."""
    columns = scope.columns
    name = columns.inputs[index][0]
    maker = scope.producers.get(name)
    # Nearly all that a Relu reads is made so; to follow types through a whole network takes longer.
    if maker is not None and columns.domains[maker] in ONNX_DOMAINS and _makes_floats(columns.ops[maker]):
        return False
    return scope.dtype(name) in INTEGERS


@functools.cache
def _makes_floats(op: str) -> bool:
    """Whether an operator makes nothing but floats, whatever it reads and whatever its version."""
    kinds = set[str]()
    # Of Erf and ReduceLogSum older versions make integers, of no other operator.
    for schema in _versions(op):
        allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
        kinds.update(kind for result in schema.outputs for kind in allowed.get(result.type_str, (result.type_str,)))
    return bool(kinds) and all(kind.startswith(("tensor(float", "tensor(double", "tensor(bfloat")) for kind in kinds)


def _versions(op: str) -> Iterator[Any]:
    version = onnx.defs.onnx_opset_version()
    while version > 0:
        try:
            schema = onnx.defs.get_schema(op, version)
        except onnx.defs.SchemaError:
            return
        yield schema
        version = schema.since_version - 1
