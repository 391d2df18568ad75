"""Relu, Sign and Pow of integers, which some parsers have of floats alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.graph.types import INTEGERS, ONNX_DOMAINS
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_LARGEST_POWER = 62
"""That of 2 which int64 has."""


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
    """Writes powers of integers as products, and integers that are exponents of floats as floats, for TensorRT 8.

    What its type cannot hold wraps around, as by ONNX's evaluator; ONNX Runtime makes the lowest number of it.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (int32[4] x) => (int32[4] y) <int32 three = {3}> { y = Pow (x, three) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (int32[4] x) => (int32[4] y) { a = Mul (x, x)  y = Mul (x, a) }
    """

    name = "multiply-for-power"
    ops = frozenset({"Pow"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        if not target.before(9):
            return False
        return _reads_integers(scope, index) or scope.dtype(scope.columns.inputs[index][1]) in INTEGERS

    def write(self, writer: Writer, target: Target) -> str | None:
        base = writer.input(0)
        dtype = writer.dtype(base)
        if dtype.kind in "bu" or (dtype.kind == "i" and dtype.itemsize < np.dtype(np.int32).itemsize):
            # ONNX has no powers of these.
            raise Unwritable
        if dtype.kind != "i":
            exponents = writer.resolve(writer.input(1))
            if exponents is not None and not _has_all(dtype, exponents):
                raise Unwritable(f"its exponents are no numbers of {dtype.name}")
            writer.again([base, writer.cast_or_fold(writer.input(1), dtype)])
            return f"its exponents are made {dtype.name}"
        exponents = writer.values(1, "exponents")
        with np.errstate(invalid="ignore"):
            powers = exponents.astype(np.int64)
        if not np.array_equal(powers, exponents) or not all(0 <= power <= _LARGEST_POWER for power in powers.flat):
            raise Unwritable(f"not all of its exponents are whole numbers from 0 to {_LARGEST_POWER}")
        _write_products(writer, base, powers, dtype)
        return None


def _has_all(dtype: np.dtype[Any], numbers: NDArray[Any]) -> bool:
    """Whether a type of floats has all of some integers."""
    with np.errstate(over="ignore"):
        return np.array_equal(numbers.astype(dtype).astype(np.float64), numbers)


def _write_products(writer: Writer, base: str, powers: NDArray[np.int64], dtype: np.dtype[Any]) -> None:
    """Writes powers as products of the base, its square, the square of that and so on, each where its bit is set."""
    one, square, factors = np.ones((), dtype), base, list[Any]()
    for bit in range(int(powers.max(initial=0)).bit_length()):
        square = writer("Mul", square, square) if bit else base
        has_bit = (powers >> bit & 1).astype(bool)
        if has_bit.any():
            factors.append(square if has_bit.all() else writer("Where", has_bit, square, one))
    if not factors:
        factors.append(writer("Add", writer("Mul", base, one - one), one))
    if powers.ndim > len(writer.shape(base)) or powers.size > 1 or len(factors) == 1:
        # The result has the shape of both.
        factors.append(np.ones(powers.shape, dtype))
    product = factors[0]
    for factor in factors[1:-1]:
        product = writer("Mul", product, factor)
    writer("Mul", product, factors[-1], to=writer.output())


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
