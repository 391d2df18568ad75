"""The terms of nodes that look at one element at a time, and of constants."""

from __future__ import annotations

import functools

import numpy as np

from trtconv.graph.types import known_dtype_name
from trtconv.runtimes.proof.terms import parts
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.node_call import NodeCall, Words
from trtconv.runtimes.proof.terms.term import Term, Wordless


def _constant(call: NodeCall) -> Term:
    value = call.take("value", None)
    if value is None:
        raise Wordless("a constant in another form")
    return terms.constant(call.values_of(value))


def _identity(call: NodeCall) -> Term:
    return call.operand()


def _cast(call: NodeCall) -> Term:
    call.take("saturate", None)
    dtype = known_dtype_name(call.take("to", 0))
    if dtype is None:
        raise Wordless("a type that is not known")
    return terms.cast(call.operand(), dtype)


def _shape(call: NodeCall) -> Term:
    source, start, end = call.operand(), call.take("start", 0), call.take("end", None)
    axes = range(source.rank)[start:end]
    if -1 not in source.sizes[start:end]:
        return terms.constant(np.array(source.sizes[start:end], np.int64))
    return parts.cut(parts.shape_of(source, "int64"), (axes.start,), (len(axes),), (1,))


def _where(call: NodeCall) -> Term:
    return terms.selection(call.operand(0), call.operand(1), call.operand(2))


def _at_least(op: str, call: NodeCall) -> Term:
    one, other = call.operand(0), call.operand(1)
    return terms.joined("OR", terms.joined(op, one, other), terms.joined("EQUAL", one, other))


def _is_infinite(call: NodeCall) -> Term:
    if not (call.flag("detect_negative", 1) and call.flag("detect_positive", 1)):
        raise Wordless("one sign")
    return terms.applied("ISINF", call.operand())


def _joined(op: str, call: NodeCall) -> Term:
    return terms.joined(op, call.operand(0), call.operand(1))


def _applied(op: str, call: NodeCall) -> Term:
    return terms.applied(op, call.operand())


def _leaky_relu(call: NodeCall) -> Term:
    return terms.applied("LEAKY_RELU", call.operand(), call.number("alpha", 0.01))


def _elu(call: NodeCall) -> Term:
    return terms.applied("ELU", call.operand(), call.number("alpha", 1.0))


def _softplus(call: NodeCall) -> Term:
    return terms.applied("SOFTPLUS", call.operand(), 1.0, 1.0)


def _mish(call: NodeCall) -> Term:
    source = call.operand()
    return terms.joined("PROD", source, terms.applied("TANH", terms.applied("SOFTPLUS", source, 1.0, 1.0)))


def _selu(call: NodeCall) -> Term:
    alpha, gamma = call.number("alpha", 1.67326319217681884765625), call.number("gamma", 1.05070102214813232421875)
    return terms.applied("SELU", call.operand(), alpha, gamma)


def _hard_sigmoid(call: NodeCall) -> Term:
    return terms.applied("HARD_SIGMOID", call.operand(), call.number("alpha", 0.2), call.number("beta", 0.5))


def _hard_swish(call: NodeCall) -> Term:
    source = call.operand()
    gate = terms.applied("HARD_SIGMOID", source, float(np.float32(1 / 6)), 0.5)
    return terms.joined("PROD", source, gate)


def _thresholded_relu(call: NodeCall) -> Term:
    return terms.applied("THRESHOLDED_RELU", call.operand(), call.number("alpha", 1.0))


def _gelu(call: NodeCall) -> Term:
    return terms.applied(_GELUS[call.take("approximate", b"none")], call.operand())


_GELUS = {b"none": "GELU_ERF", b"tanh": "GELU_TANH"}


def _clip(call: NodeCall) -> Term:
    source = call.operand(0)
    # Of narrower types TensorRT's parser has these, and ONNX their own.
    ends = (-_LARGEST, _LARGEST) if source.dtype == "float32" else (np.nan, np.nan)
    if call.opset < 11:
        limits = call.number("min", ends[0]), call.number("max", ends[1])
    else:
        limits = call.scalar(1, ends[0]), call.scalar(2, ends[1])
    if not np.isfinite(limits).all() or limits[0] > limits[1]:
        raise Wordless("limits of its own")
    low, high = (terms.constant(np.array(limit, source.dtype)) for limit in limits)
    written_out = terms.joined("MIN", terms.joined("MAX", source, low), high)
    return terms.either(terms.applied("CLIP", source, *limits), written_out)


_LARGEST = float(np.finfo(np.float32).max)


def _prelu(call: NodeCall) -> Term:
    source, slope = call.operand(0), call.operand(1)
    if slope.rank > source.rank:
        raise Wordless("slopes of more axes")
    return terms.joined("PRELU", source, slope)


_ACTIVATIONS = {"Relu": "RELU", "Sigmoid": "SIGMOID", "Tanh": "TANH", "Softsign": "SOFTSIGN"}


_UNARY = (
    "Exp Log Sqrt Abs Neg Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Ceil Floor Erf Sign Round Reciprocal"
)


_JOINED = {
    "And": "AND",
    "Equal": "EQUAL",
    "Greater": "GREATER",
    "Less": "LESS",
    "Or": "OR",
    "Xor": "XOR",
    "Add": "SUM",
    "Sub": "SUB",
    "Mul": "PROD",
    "Div": "DIV",
    "Pow": "POW",
    "Sum": "SUM",
    "Max": "MAX",
    "Min": "MIN",
}
"""Operators that join two; Sum, Max and Min of more have no words."""


WORDS: dict[str, Words] = {
    **{op: functools.partial(_applied, name) for op, name in _ACTIVATIONS.items()},
    **{op: functools.partial(_applied, {"Reciprocal": "RECIP"}.get(op, op.upper())) for op in _UNARY.split()},
    **{op: functools.partial(_joined, name) for op, name in _JOINED.items()},
    "GreaterOrEqual": functools.partial(_at_least, "GREATER"),
    "LessOrEqual": functools.partial(_at_least, "LESS"),
    "IsInf": _is_infinite,
    "IsNaN": functools.partial(_applied, "ISNAN"),
    "Not": functools.partial(_applied, "NOT"),
    "Cast": _cast,
    "Clip": _clip,
    "Constant": _constant,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Identity": _identity,
    "LeakyRelu": _leaky_relu,
    "Mish": _mish,
    "PRelu": _prelu,
    "Selu": _selu,
    "Shape": _shape,
    "Softplus": _softplus,
    "ThresholdedRelu": _thresholded_relu,
    "Where": _where,
}
"""Operators to the words for them."""
