"""Infinities that the builder of TensorRT 8.6 takes for large numbers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from trtconv.core.budget import BudgetExceeded
from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.resolve import resolved
from trtconv.graph.scope import Scope
from trtconv.graph.settled import is_settled
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_FLOATS = ("float32", "float16")
_FINITE = frozenset(
    (
        *("And", "ArgMax", "ArgMin", "Equal", "Erf", "Greater", "GreaterOrEqual", "HardSigmoid", "Hardmax", "IsInf"),
        *("IsNaN", "Less", "LessOrEqual", "NonZero", "Not", "Or", "Shape", "Sigmoid", "Sign", "Size", "Softmax"),
        *("Softsign", "Tanh", "Xor"),
    )
)
"""Operators that make no infinity of one."""
_MAKERS: Mapping[str, np.ufunc] = {
    "Div": np.divide,
    "Exp": np.exp,
    "Log": np.log,
    "Pow": np.power,
    "Reciprocal": np.reciprocal,
}
"""Operators that make infinities of finite numbers, as numpy computes them."""
_PRODUCTS = frozenset(("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"))
"""Operators whose constants are weights, which are many and finite."""
_MOST_ELEMENTS = 1 << 12
"""Of a constant that takes the place of what is computed."""
_MOST_LOOKED_AT = 1 << 22
"""Elements of a constant among which an infinity is looked for."""


class GatherInfinities(Spelling):
    """Gives a Where or comparison that takes nothing but infinity a constant that the builder keeps.

    The builder of TensorRT 8.6 makes 1e38 of an infinite constant of one element that a Where takes, or of one that is
    filled or expanded; an Equal finds no infinity equal to it, nor to what is computed of constants alone, and a Less
    minus infinity less than minus infinity (executed on 8.6.0). An attention that compares for rows that are masked
    whole was NaN there. Of a constant of more elements it keeps them, and of one of two elements that one is gathered
    from.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (bool[2,3] m, float[2,3] x) => (float[2,3] y) <float c = {-inf}> { y = Where (m, c, x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (bool[2,3] m, float[2,3] x) => (float[2,3] y) <float[2] two = {-inf, 0}, int64 first = {0}>
        { c = Gather <axis = 0> (two, first)  y = Where (m, c, x) }
    """

    name = "gather-infinities"
    ops = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Where"})

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return target.before(9) and any(_may_be_misread(scope, name) for name in scope.columns.inputs[index])

    def write(self, writer: Writer, target: Target) -> str | None:
        inputs = [self._constant(writer, name) for name in writer.node.input]
        if inputs == list(writer.node.input):
            raise Unwritable
        writer.again(inputs)
        return f"an infinity that {writer.node.op_type} takes written so that the builder keeps it"

    @staticmethod
    def _constant(writer: Writer, name: str) -> str:
        values = _values(writer, name) if _may_be_misread(writer.scope, name) else None
        if values is None or not values.size or not np.isinf(values).all():
            return name
        shape = values.shape
        if values.size > 1 and _is_broadcast(writer, name, shape):
            shape = (1,) * len(shape)
        if math.prod(shape) > 1:
            return writer.constant(values) if values.size <= _MOST_ELEMENTS else name
        two = np.array([values.reshape(-1)[0], 0], values.dtype)
        return writer("Gather", two, np.zeros(shape, np.int64), axis=0)


class ReduceMaxByMin(Spelling):
    """Writes a ReduceMax that an infinity may reach as ReduceMin of what has the other sign.

    TensorRT 8.6 takes the lowest number of float32 for the largest of nothing but minus infinity, where ReduceMin is
    right (executed on 8.6.0). Where no infinity of a constant, nor one that constants and sizes make, goes into it,
    nothing is written.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,1] y) <float[3] c = {0, -inf, -inf}>
        { a = Add (x, c)  y = ReduceMax <axes = [1]> (a) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,1] y) <float[3] c = {0, -inf, -inf}>
        { a = Add (x, c)  n = Neg (a)  m = ReduceMin <axes = [1]> (n)  y = Neg (m) }
    """

    name = "reduce-max-by-min"
    ops = frozenset({"ReduceMax"})

    def _sites(self, scope: Scope, target: Target) -> list[int]:
        sites = super()._sites(scope, target)
        return [index for index in sites if scope.columns.inputs[index][0] in _infinite_names(scope)]

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return target.before(9) and scope.dtype(scope.columns.inputs[index][0]) in _FLOATS

    def write(self, writer: Writer, target: Target) -> str | None:
        if writer.scope.shape(writer.input(0)) == ():
            raise Unwritable
        least = writer.model.fresh_name(f"{writer.output()}/least")
        inputs = [writer("Neg", writer.input(0)), *writer.node.input[1:]]
        writer.again(inputs, [least]).op_type = "ReduceMin"
        writer("Neg", least, to=writer.output())
        return "ReduceMax written as Neg, ReduceMin"


def _may_be_misread(scope: Scope, name: str) -> bool:
    """Whether a tensor is a constant of one element that is infinite, or may be, computed of constants alone."""
    tensor = scope.constant(name)
    if tensor is None:
        is_float = scope.dtype(name) in _FLOATS and is_settled(scope, name)
        # All of the network is looked at for the names, so that is asked last.
        return is_float and not _is_gathered(scope, name) and name in _infinite_names(scope)
    # Values of weights may lie in another file.
    values = scope.values(name) if math.prod(tensor.dims) == 1 else None
    return values is not None and str(values.dtype) in _FLOATS and bool(np.isinf(values).all())


def _is_gathered(scope: Scope, name: str) -> bool:
    """Whether a tensor is gathered from a constant of more than one element, as the builder keeps it."""
    maker = scope.producer(name)
    source = scope.constant(maker.input[0]) if maker is not None and maker.op_type == "Gather" else None
    return source is not None and math.prod(source.dims) > 1


def _values(writer: Writer, name: str) -> NDArray[Any] | None:
    """Returns the values of a tensor that constants alone make, in this graph or one around it."""
    scope = writer.scope
    while name not in scope.producers and name not in scope.input_names and scope.parent is not None:
        scope = scope.parent
    try:
        return resolved(scope, name, writer.model.proto.opset_import)
    except BudgetExceeded:
        # Whether the model is refused for it is asked of all that constants make, elsewhere.
        return None


def _is_broadcast(writer: Writer, name: str, shape: tuple[int, ...]) -> bool:
    """Whether the other inputs of a node have all axes that an input repeats itself along."""
    others = [writer.scope.shape(other) or () for other in writer.node.input if other != name]
    return all(
        size == 1 or any(len(other) >= place and other[-place] == size for other in others)
        for place, size in enumerate(reversed(shape), start=1)
    )


def _infinite_names(scope: Scope) -> Set[str]:
    """Returns the tensors of a graph, and of those around it, among whose values an infinity of constants may be."""
    key = f"infinite names of {scope.position}"
    if key not in scope.whole.derived:
        scope.whole.derived[key] = _all_infinite(scope)
    names: Set[str] = scope.whole.derived[key]
    return names


def _all_infinite(scope: Scope) -> Set[str]:
    names = set(() if scope.parent is None else _infinite_names(scope.parent))
    constants: dict[str, bool] = {}
    columns = scope.columns
    rows = zip(columns.ops, columns.domains, columns.inputs, columns.outputs, columns.nodes, strict=True)
    for kind, domain, inputs, outputs, node in rows:
        op = kind if domain in ONNX_DOMAINS else ""
        if op in _FINITE:
            continue
        if op not in _PRODUCTS:
            for name in inputs:
                if name and name not in constants:
                    constants[name] = _is_infinite(scope, name)
        value = attribute(node, "value") if op == "ConstantOfShape" else None
        is_filled = value is not None and bool(np.isinf(numpy_helper.to_array(value)).any())
        is_made = op in _MAKERS and _makes_infinity(scope, op, inputs)
        if is_filled or is_made or any(name in names or constants.get(name) for name in inputs):
            names.update(outputs)
    return names


def _makes_infinity(scope: Scope, op: str, inputs: Sequence[str]) -> bool:
    """Whether an operator may make an infinity of finite numbers that constants and sizes decide."""
    if not all(is_settled(scope, name) for name in inputs):
        return False
    arrays = [array for array in (_array(scope, name) for name in inputs) if array is not None]
    # More is not computed for this alone: what is written for nothing computes the same.
    if not len(arrays) == len(inputs) == _MAKERS[op].nin or arrays[0].dtype.kind != "f" or not _are_few(arrays):
        return True
    with np.errstate(all="ignore"):
        return bool(np.isinf(_MAKERS[op](*arrays)).any())


def _are_few(arrays: Sequence[NDArray[Any]]) -> bool:
    """Whether what is computed of arrays, element by element, has few elements; False of what does not fit."""
    with contextlib.suppress(ValueError):
        return math.prod(np.broadcast_shapes(*(array.shape for array in arrays))) <= _MOST_ELEMENTS
    return False


def _is_infinite(scope: Scope, name: str) -> bool:
    """Whether a tensor is a constant with an infinity."""
    values = _array(scope, name)
    return values is not None and values.dtype.kind == "f" and bool(np.isinf(values).any())


def _array(scope: Scope, name: str) -> NDArray[Any] | None:
    """Returns the values of a constant that is not too large to look at."""
    tensor = scope.constant(name)
    return None if tensor is None or math.prod(tensor.dims) > _MOST_LOOKED_AT else scope.values(name)
