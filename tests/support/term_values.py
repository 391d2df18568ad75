"""What terms stand for, in NumPy and ONNX Runtime: an independent idea of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import helper

from support.session import Array, session
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.terms import of_model
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.defined import UNFIT
from trtconv.runtimes.proof.terms.term import Term

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _divided(a: Array, b: Array) -> Any:
    quotient = np.divide(a, b)
    return np.trunc(quotient) if a.dtype.kind in "iu" else quotient


ELEMENTS: dict[str, Callable[..., Any]] = {
    "RELU": lambda x: np.maximum(x, 0),
    "SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
    "SOFTSIGN": lambda x: x / (1 + np.abs(x)),
    "GELU_ERF": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "GELU_TANH": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "LEAKY_RELU": lambda x, a: np.where(x < 0, a * x, x),
    "ELU": lambda x, a: np.where(x < 0, a * np.expm1(x), x),
    "THRESHOLDED_RELU": lambda x, a: np.where(x > a, x, 0),
    "HARD_SIGMOID": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "CLIP": lambda x, low, high: np.clip(x, low, high) if low <= high else None,
    "SELU": lambda x, a, b: b * np.where(x > 0, x, a * np.expm1(x)),
    "SOFTPLUS": lambda x, a, b: a * np.log1p(np.exp(b * x)),
    "ERF": _erf,
    "RECIP": lambda x: 1 / x,
    "ROUND": np.rint,
    "NEG": np.negative,
    "NOT": np.logical_not,
    "ISNAN": np.isnan,
    "ISINF": np.isinf,
    "SUM": np.add,
    "SUB": np.subtract,
    "PROD": np.multiply,
    "DIV": _divided,
    "POW": np.power,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "LESS": np.less,
    "AND": np.logical_and,
    "OR": np.logical_or,
    "XOR": np.logical_xor,
    "PRELU": lambda x, slope: np.where(x < 0, slope * x, x),
    "select": np.where,
    "matmul": np.matmul,
    **{
        name.upper(): getattr(np, name)
        for name in "exp log sqrt abs sin cos tan sinh cosh tanh arcsin ceil floor sign".split()  # noqa: SIM905
    },
    **{f"A{name.upper()}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
}
REDUCED: dict[str, Callable[..., Any]] = {"AVG": np.mean, "SUM": np.sum, "MAX": np.max, "MIN": np.min, "PROD": np.prod}
PADDED: Any = {"FILL": "constant", "CLAMP": "edge", "REFLECT": "reflect", "WRAP": "wrap"}
PLACES = {
    ("HALF_PIXEL", "FORMULA"): "half_pixel",
    ("HALF_PIXEL", "UPPER"): "pytorch_half_pixel",
    ("ASYMMETRIC", "FORMULA"): "asymmetric",
    ("ALIGN_CORNERS", "UPPER"): "align_corners",
}
NEAREST = {
    "HALF_DOWN": "round_prefer_floor",
    "HALF_UP": "round_prefer_ceil",
    "FLOOR": "floor",
    "CEIL": "ceil",
}


def term_of(model: OnnxModel) -> Term | None:
    """Returns what `y` is written down as; None where it has no words."""
    sources = {}
    for spec in model.inputs:
        sizes = tuple(dim if isinstance(dim, int) else -1 for dim in spec.dims)
        sources[spec.name] = terms.tensor(spec.name, model.main.dtype(spec.name) or "", sizes)
    try:
        return of_model.NodeTerms(model).of(range(len(model.proto.graph.node)), sources)["y"]
    except UNFIT:
        return None


def value_of(term: Term, feeds: Mapping[str, Array]) -> Array:
    """Returns what a term is where the tensors have values, and holds its type and its sizes to that."""
    operands = [value_of(operand, feeds) for operand in term.operands]
    if term.op == "tensor":
        value = feeds[term.details[0]]
    elif term.folded is not None:
        value = term.folded.values.astype(term.dtype).reshape(term.sizes)
    elif term.op == "constant":
        assert term.array is not None
        value = term.array
    else:
        with np.errstate(all="ignore"):
            value = np.asarray(_made(term, operands)).astype(term.dtype)
    assert value.dtype == term.dtype
    assert len(value.shape) == len(term.sizes)
    assert all(size in (-1, n) for size, n in zip(term.sizes, value.shape, strict=True)), (term.op, term.sizes)
    return value


def _made(term: Term, operands: list[Array]) -> Any:
    kind, _, what = term.op.partition(" ")
    if kind in ELEMENTS:
        return ELEMENTS[kind](*operands, *term.details)
    return _KINDS[kind](term, what, *operands)


def _reshaped(term: Term, how: str, x: Array, *computed: Array) -> Array:
    left, (sizes, _) = iter(computed), term.details if how == "to" else (term.details, True)
    sizes = [next(left) if size is None else size for size in sizes]
    return x.reshape([x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)])


def _listed(term: Term, _: str, *computed: Array) -> Array:
    left = iter(computed)
    return np.reshape([next(left) if length is None else length for length in term.details], term.sizes)


def _cumulative(term: Term, _: str, x: Array) -> Array:
    axis, exclusive, reverse = term.details
    x = np.flip(x, axis) if reverse else x
    sums = np.cumsum(x, axis) - (x if exclusive else 0)
    return np.flip(sums, axis) if reverse else sums


def _summed(term: Term, _: str, *operands: Array) -> Any:
    *rows, result = term.details
    pairs = [part for pair in zip(operands, map(list, rows), strict=True) for part in pair]
    return np.einsum(*pairs, list(result))


def _softmax(term: Term, _: str, x: Array) -> Any:
    wide = np.exp(x.astype(np.float64) - x.max(term.details[0], keepdims=True))
    return wide / wide.sum(term.details[0], keepdims=True)


def _normalized(term: Term, _: str, x: Array, scale: Array, bias: Any = 0) -> Any:
    axes, epsilon = term.details
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon) * scale + bias


def _padded(term: Term, _: str, x: Array) -> Array:
    low, mode, *fill = term.details
    pads = [(n, size - n - own) for n, size, own in zip(low, term.sizes, x.shape, strict=True)]
    how: dict[str, Any] = {"constant_values": fill[0]} if fill else {}
    return np.pad(x, pads, PADDED[mode], **how)


def _cut(term: Term, _: str, x: Array) -> Array:
    starts, steps = term.details
    counts = [own if count < 0 else count for count, own in zip(term.sizes, x.shape, strict=True)]
    rows = [start + step * np.arange(count) for start, step, count in zip(starts, steps, counts, strict=True)]
    return x[np.ix_(*rows)]


def _gathered(term: Term, kind: str, x: Array, indices: Array) -> Any:
    (where,) = term.details
    return _by_runtime("GatherND", [x, indices], batch_dims=where) if kind == "nd" else np.take(x, indices, where)


def _resized(term: Term, _: str, x: Array) -> Any:
    mode, places, *own, factors = term.details
    left = iter(factors)
    sizes = [old * next(left) if size < 0 else size for size, old in zip(term.sizes, x.shape, strict=True)]
    rounding = {"nearest_mode": NEAREST[own.pop(0)]} if mode == "NEAREST" else {}
    cubic = {"cubic_coeff_a": own.pop(0)} if mode == "CUBIC" else {}
    single = own[0] if own else next(alone for place, alone in PLACES if place == places)
    how = {"coordinate_transformation_mode": PLACES[places, single], **rounding, **cubic}
    return _by_runtime("Resize", [x, None, None, np.array(sizes, np.int64)], mode=mode.lower(), **how)


def _convolved(term: Term, op: str, *operands: Array) -> Any:
    strides, low, high, dilations, group = term.details
    source, kernel, *bias = operands
    transpose = term.op == "deconv"
    # Some versions of ONNX Runtime read beyond what there is.
    assert source.shape[1] == kernel.shape[0 if transpose else 1] * (1 if transpose else group)
    assert all(len(values) == (kernel.shape[1] * group if transpose else kernel.shape[0]) for values in bias)
    how = {"strides": strides, "pads": [*low, *high], "dilations": dilations, "group": group}
    return _by_runtime("Conv" if term.op == "conv" else "ConvTranspose", list(operands), **how)


def _pooled(term: Term, kind: str, x: Array) -> Any:
    shape, strides, low, high, _, counts = term.details
    how: dict[str, Any] = {"kernel_shape": shape, "strides": strides, "pads": [*low, *high]}
    if kind == "MAX":
        return _by_runtime("MaxPool", [x], **how)
    return _by_runtime("AveragePool", [x], count_include_pad=int(counts), **how)


def _by_runtime(op: str, inputs: list[Any], **attributes: Any) -> Any:
    names = ["" if each is None else f"i{at}" for at, each in enumerate(inputs)]
    feeds = {name: each for name, each in zip(names, inputs, strict=True) if name}
    ends = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in feeds.items()
    ]
    result = helper.make_tensor_value_info("y", ends[0].type.tensor_type.elem_type, None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "g", ends, [result])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])
    return session(model).run(["y"], feeds)[0]


def _either(_: Term, __: str, one: Array, other: Array) -> Array:
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    return one


_KINDS: dict[str, Callable[..., Any]] = {
    "either": _either,
    "cast": lambda term, _, x: x.astype(term.dtype),
    "transpose": lambda term, _, x: x.transpose(term.details[0]),
    "reshape": _reshaped,
    "unsqueeze": lambda term, _, x: np.expand_dims(x, term.details),
    "squeeze": lambda term, _, x: np.squeeze(x, term.details),
    "reduce": lambda term, op, x: REDUCED[op](x, term.details[0], keepdims=term.details[1]),
    "cumulative": _cumulative,
    "softmax": _softmax,
    "einsum": _summed,
    "normalize": _normalized,
    "pad": _padded,
    "gather": _gathered,
    "concat": lambda term, _, *operands: np.concatenate(operands, term.details[0]),
    "slice": _cut,
    "resize": _resized,
    "conv": _convolved,
    "deconv": _convolved,
    "pool": _pooled,
    "shape": lambda term, _, x: np.array(x.shape),
    "size": lambda term, _, x: np.array(x.shape[term.details[0]]),
    "lengths": _listed,
}
