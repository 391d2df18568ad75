"""What nodes compute of constants: sizes, axes and scales that a graph works out for itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.graph.types import known_dtype_name
from trtconv.runtimes.proof.terms.node_call import NodeCall, Words
from trtconv.runtimes.proof.terms.term import MAX_ELEMENTS, Term, Wordless, constant


def _joined(function: Callable[[Array, Array], Array], call: NodeCall) -> Term:
    one, other = call.array(0), call.array(1)
    _require_few(one, other)
    with np.errstate(all="ignore"):
        result = np.asarray(function(one, other))
    return constant(result if result.dtype.kind == "b" else result.astype(one.dtype))


def _require_few(*arrays: Array) -> None:
    if math.prod(np.broadcast_shapes(*(array.shape for array in arrays))) > MAX_ELEMENTS:
        raise Wordless("much of few")


def _applied(function: Callable[[Array], Array], call: NodeCall) -> Term:
    values = call.array(0)
    with np.errstate(all="ignore"):
        return constant(np.asarray(function(values)).astype(values.dtype))


def _divided(one: Array, other: Array) -> Array:
    if one.dtype.kind not in "iu":
        return np.divide(one, other)
    if not other.all():
        raise Wordless("division by zero")
    # Towards zero.
    return np.asarray(np.sign(one) * np.sign(other) * (np.abs(one) // np.abs(other)))


def _mod(call: NodeCall) -> Term:
    one, other = call.array(0), call.array(1)
    _require_few(one, other)
    if call.take("fmod", 0) or one.dtype.kind not in "iu" or not other.all():
        raise Wordless("a remainder of its own")
    return constant(np.asarray(np.mod(one, other)))


def _cast(call: NodeCall) -> Term:
    values, dtype = call.array(0), known_dtype_name(call.take("to", 0))
    call.take("saturate", None)
    if dtype not in ("float32", "float16", "int32", "int64", "bool"):
        raise Wordless(f"values as {dtype}")
    with np.errstate(all="ignore"):
        return constant(values.astype(dtype))


def _gather(call: NodeCall) -> Term:
    values, indices, axis = call.array(0), call.array(1), call.take("axis", 0)
    if values.size // max(1, values.shape[axis]) * indices.size > MAX_ELEMENTS:
        raise Wordless("much of few")
    return constant(np.asarray(np.take(values, indices, axis)))


def _gather_elements(call: NodeCall) -> Term:
    values, indices, axis = call.array(0), call.array(1), call.take("axis", 0)
    # Other axes of the indices may be shorter.
    part = tuple(slice(None) if at == axis % values.ndim else slice(n) for at, n in enumerate(indices.shape))
    return constant(np.take_along_axis(values[part], indices, axis))


def _where(call: NodeCall) -> Term:
    condition, one, other = call.array(0), call.array(1), call.array(2)
    _require_few(condition, one, other)
    return constant(np.where(condition, one, other))


def _range(call: NodeCall) -> Term:
    first, limit, step = (call.array(at).reshape(()) for at in (0, 1, 2))
    # Python's integers, which do not overflow.
    if not step or first.dtype.kind not in "iu" or abs(int(limit) - int(first)) // abs(int(step)) > MAX_ELEMENTS:
        raise Wordless("a range of its own")
    return constant(np.arange(int(first), int(limit), int(step)).astype(first.dtype))


def _filled(call: NodeCall) -> Term:
    sizes, tensor = call.ints(0), call.take("value", None)
    value = np.zeros(1, np.float32) if tensor is None else call.values_of(tensor)
    if sizes is None or math.prod(sizes) > MAX_ELEMENTS:
        raise Wordless("much of one value")
    return constant(np.full(sizes, value.reshape(()), value.dtype))


def _copied(function: Callable[[Array, list[int]], Array], call: NodeCall) -> Term:
    values, sizes = call.array(0), call.ints(1) or []
    # NumPy makes copies along one axis after the other, also where none are left in the end.
    if math.prod(max(1, abs(size)) for size in sizes) * values.size > MAX_ELEMENTS:
        raise Wordless("many copies")
    return constant(np.ascontiguousarray(function(values, sizes)))


def _expanded(values: Array, sizes: list[int]) -> Array:
    return np.broadcast_to(values, np.broadcast_shapes(values.shape, tuple(sizes)))


def _tiled(values: Array, sizes: list[int]) -> Array:
    # NumPy takes other numbers of axes, ONNX does not.
    if len(sizes) != values.ndim:
        raise Wordless("copies of another rank")
    return np.tile(values, sizes)


_JOINED: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Div": _divided,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Sub": np.subtract,
}
_APPLIED: dict[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Floor": np.floor,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Sign": np.sign,
    "Sqrt": np.sqrt,
}

WORDS: dict[str, Words] = {
    **{op: functools.partial(_joined, function) for op, function in _JOINED.items()},
    **{op: functools.partial(_applied, function) for op, function in _APPLIED.items()},
    "Cast": _cast,
    "ConstantOfShape": _filled,
    "Expand": functools.partial(_copied, _expanded),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Mod": _mod,
    "Range": _range,
    "Tile": functools.partial(_copied, _tiled),
    "Where": _where,
}
"""Operators to what they make of few constants."""
