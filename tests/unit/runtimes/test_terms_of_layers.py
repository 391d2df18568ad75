"""Layers are written down as what they compute, whatever is changed about them, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from support.session import Array
from support.term_values import value_of
from trtconv.runtimes.proof.terms import of_network
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.defined import UNFIT
from trtconv.runtimes.proof.terms.term import Term
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

RANDOM = np.random.default_rng(3)
IMAGE = (2, 4, 8, 6)


def floats(*shape: int) -> Array:
    return RANDOM.uniform(-1.5, 1.5, shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


X, ROW = floats(*IMAGE), floats(3, 5)
NONE = np.zeros(0, np.float32)
WINDOW: dict[str, Any] = {
    "stride_nd": (2, 1),
    "pre_padding": (1, 0),
    "post_padding": (2, 1),
    "padding_mode": "EXPLICIT_ROUND_DOWN",
}
CONV: dict[str, Any] = {
    **WINDOW,
    "kernel_size_nd": (3, 2),
    "dilation_nd": (1, 2),
    "num_groups": 2,
    "num_output_maps": 6,
    "kernel": floats(6 * 2 * 3 * 2),
    "bias": floats(6),
}
VOLUME = {
    **CONV,
    "stride_nd": (1, 2, 1),
    "pre_padding": (1, 0, 1),
    "post_padding": (0, 1, 0),
    "kernel_size_nd": (2, 3, 2),
    "dilation_nd": (1, 1, 2),
    "num_groups": 1,
    "num_output_maps": 2,
    "kernel": floats(2 * 4 * 2 * 3 * 2),
    "bias": NONE,
}
POOL: dict[str, Any] = {
    **WINDOW,
    "type": "AVERAGE",
    "window_size_nd": (3, 2),
    "blend_factor": 0.0,
    "average_count_excludes_padding": False,
    "post_padding": (1, 1),
}
SHUFFLE: dict[str, Any] = {
    "first_transpose": (0, 2, 1, 3),
    "reshape_dims": (0, 8, -1),
    "second_transpose": (2, 0, 1),
    "zero_is_placeholder": True,
}
SLICE: dict[str, Any] = {
    "start": (0, 1, 6, 2),
    "shape": (2, 2, 3, 2),
    "stride": (1, 2, -1, 3),
    "mode": "STRICT_BOUNDS",
    "axes": None,
}
PAD: dict[str, Any] = {
    **SLICE,
    "start": (0, 0, -1, -2),
    "shape": (2, 4, 11, 8),
    "stride": (1, 1, 1, 1),
    "mode": "FILL",
}
RESIZE: dict[str, Any] = {
    "resize_mode": "NEAREST",
    "shape": (2, 4, 11, 9),
    "scales": (),
    "coordinate_transformation": "ASYMMETRIC",
    "selector_for_single_pixel": "FORMULA",
    "nearest_rounding": "FLOOR",
    "cubic_coeff": -0.75,
    "exclude_outside": False,
}
NORM: dict[str, Any] = {"axes": 12, "epsilon": 0.25, "num_groups": 1, "is_v2": True}
LAYERS: list[tuple[str, list[Array | None], dict[str, Any]]] = [
    *(
        ("ACTIVATION", [X], {"type": kind, "alpha": 0.25, "beta": 0.5})
        for kind in ("RELU", "SIGMOID", "TANH", "SOFTSIGN", "GELU_ERF", "GELU_TANH", "LEAKY_RELU", "ELU", "CLIP")
    ),
    *(("ACTIVATION", [X], {"type": kind, "alpha": 0.2, "beta": 0.4}) for kind in ("HARD_SIGMOID", "THRESHOLDED_RELU")),
    *(("UNARY", [X], {"op": op}) for op in ("EXP", "ABS", "NEG", "RECIP", "ROUND", "SIGN", "ERF", "ISNAN")),
    *(
        ("ELEMENTWISE", [X, floats(1, 4, 1, 1)], {"op": op})
        for op in ("SUM", "SUB", "PROD", "DIV", "MAX", "MIN", "POW", "EQUAL", "GREATER", "LESS")
    ),
    *(("ELEMENTWISE", [ints(5, -7), ints(2, 3)], {"op": op}) for op in ("SUM", "PROD", "GREATER")),
    *(("ELEMENTWISE", [X > 0, X < 1], {"op": op}) for op in ("AND", "OR", "XOR")),
    ("CONSTANT", [], {"weights": floats(6), "shape": (2, 3)}),
    ("CAST", [X], {"to_type": "HALF"}),
    ("IDENTITY", [X], {}),
    ("SHAPE", [X], {}),
    ("SHUFFLE", [X], SHUFFLE),
    ("SHUFFLE", [X], {**SHUFFLE, "reshape_dims": (8, 8, -1), "second_transpose": (0, 1, 2)}),
    ("SHUFFLE", [X], {**SHUFFLE, "reshape_dims": None, "second_transpose": (0, 1, 2, 3)}),
    ("SHUFFLE", [X, ints(4, 96)], {**SHUFFLE, "reshape_dims": None, "second_transpose": (1, 0)}),
    ("SQUEEZE", [floats(1, 3, 1), ints(0, -1)], {}),
    ("UNSQUEEZE", [ROW, ints(0, -1)], {}),
    ("MATRIX_MULTIPLY", [floats(2, 3, 5), floats(1, 5, 4)], {"op0": "NONE", "op1": "NONE"}),
    ("MATRIX_MULTIPLY", [floats(2, 5, 5), floats(1, 4, 5)], {"op0": "TRANSPOSE", "op1": "TRANSPOSE"}),
    ("CONVOLUTION", [X], CONV),
    ("CONVOLUTION", [floats(1, 4, 4, 6, 5)], VOLUME),
    ("CONVOLUTION", [X, floats(6, 2, 3, 2)], {**CONV, "kernel": NONE}),
    ("CONVOLUTION", [X, None, floats(6)], {**CONV, "bias": NONE}),
    ("DECONVOLUTION", [X], {**CONV, "kernel": floats(4 * 3 * 3 * 2)}),
    ("DECONVOLUTION", [X, floats(4, 3, 3, 2)], {**CONV, "kernel": NONE, "bias": NONE}),
    ("POOLING", [X], POOL),
    ("POOLING", [X], {**POOL, "average_count_excludes_padding": True}),
    ("POOLING", [X], {**POOL, "type": "MAX"}),
    *(("REDUCE", [X], {"op": op, "axes": 10, "keep_dims": True}) for op in ("AVG", "SUM", "MAX", "MIN", "PROD")),
    ("CUMULATIVE", [X, np.array(1)], {"op": "SUM", "exclusive": True, "reverse": False}),
    ("SOFTMAX", [X], {"axes": 2}),
    ("CONCATENATION", [X, X], {"axis": 1}),
    ("GATHER", [X, ints(2, -1, 0)], {"axis": 1, "mode": "DEFAULT", "num_elementwise_dims": 0}),
    ("SELECT", [floats(3, 1) > 0, floats(3, 5), floats(1, 5)], {}),
    ("PARAMETRIC_RELU", [X, floats(1, 4, 1, 1)], {}),
    ("NORMALIZATION", [X, floats(1, 1, 8, 6), floats(1, 1, 8, 6)], NORM),
    ("NORMALIZATION", [X, floats(1, 4, 1, 1), floats(1, 4, 1, 1)], NORM),
    ("SLICE", [X], SLICE),
    ("SLICE", [X], {**SLICE, "start": (0, 1, 2, 0), "shape": (1, 2, 3, 2), "stride": (2, 2, 2, 3)}),
    ("SLICE", [X], {**SLICE, "start": (2, 1), "shape": (2, 3), "stride": (3, 1), "axes": (2, -1)}),
    ("SLICE", [X, ints(2, 1), ints(2, 3), ints(3, 1), None, ints(2, -1)], {**dict.fromkeys(SLICE), "mode": "FILL"}),
    ("SLICE", [X], {**SLICE, "start": (0, 1, 2, 0), "shape": (2, 3, 6, 6), "stride": (1, 1, 1, 1), "mode": "CLAMP"}),
    ("SLICE", [X], PAD),
    ("SLICE", [X, None, None, None, np.float32(0.5)], PAD),
    *(("SLICE", [X], {**PAD, "mode": mode}) for mode in ("CLAMP", "REFLECT", "WRAP")),
    ("RESIZE", [X], RESIZE),
    ("RESIZE", [X, ints(2, 4, 11, 9)], {**RESIZE, "shape": None}),
    ("RESIZE", [X], {**RESIZE, "shape": None, "scales": (1.0, 1.0, 2.0, 0.5), "nearest_rounding": "CEIL"}),
    ("RESIZE", [X], {**RESIZE, "resize_mode": "LINEAR", "coordinate_transformation": "ALIGN_CORNERS"}),
    ("RESIZE", [X], {**RESIZE, "shape": (2, 4, 1, 9), "selector_for_single_pixel": "UPPER"}),
]  # fmt: skip
"""Kinds, what is read, and attributes, of all of which words are known."""
NAMES = {
    "type": ("RELU", "TANH", "ELU", "SELU", "CLIP", "MAX", "AVERAGE", "MAX_AVERAGE_BLEND"),
    "op": ("SUM", "SUB", "PROD", "MAX", "AVG", "DIV", "EXP", "FLOOR_DIV", "EQUAL", "NOT", "AND"),
    "mode": ("ND", "ELEMENT", "FILL", "CLAMP", "WRAP", "REFLECT"),
    "op0": ("TRANSPOSE", "NONE", "VECTOR"),
    "op1": ("TRANSPOSE", "NONE", "VECTOR"),
    "padding_mode": ("EXPLICIT_ROUND_UP", "SAME_UPPER"),
    "resize_mode": ("NEAREST", "LINEAR", "CUBIC"),
    "coordinate_transformation": ("HALF_PIXEL", "ASYMMETRIC", "ALIGN_CORNERS"),
    "nearest_rounding": ("FLOOR", "CEIL", "HALF_UP", "HALF_DOWN"),
    "selector_for_single_pixel": ("UPPER", "FORMULA"),
    "to_type": ("HALF", "INT64", "FLOAT"),
}
"""What attributes that are names may become."""


def network_of(layer: ReadLayer, held: list[Array | None], dtype: str, shape: tuple[int, ...] | None) -> ReadNetwork:
    ends = [ReadTensor(at, f"t{at}", str(v.dtype), v.shape) for at, v in enumerate(_given(held))]
    result = ReadTensor(len(ends), "y", dtype, shape)
    return ReadNetwork((*ends, result), (layer,), tuple(range(len(ends))), (len(ends),))


def _given(held: list[Array | None]) -> list[Array]:
    return [values for values in held if values is not None]


def layer_of(kind: str, held: list[Array | None], values: Mapping[str, Any]) -> ReadLayer:
    numbers = iter(range(len(held)))
    inputs = tuple(None if each is None else next(numbers) for each in held)
    return ReadLayer(0, "y", kind, inputs, (len(_given(held)),), values)


def dtype_of(kind: str, held: list[Array | None], values: Mapping[str, Any]) -> str:
    if kind == "SHAPE":
        return "int64"
    if kind == "CAST":
        return {"HALF": "float16", "INT64": "int64"}.get(values.get("to_type", ""), "float32")
    if values.get("op") in ("EQUAL", "GREATER", "LESS", "ISNAN"):
        return "bool"
    first = _given(held)[1 if kind == "SELECT" else 0 :]
    return str(first[0].dtype) if first else "float32"


def computed(kind: str, held: list[Array | None], values: Mapping[str, Any]) -> Array | None:
    """Returns what a layer computes; None where it is not run."""
    network = network_of(layer_of(kind, held, values), held, dtype_of(kind, held, values), None)
    feeds = {f"t{at}": each for at, each in enumerate(_given(held))}
    try:
        return Run(network, feeds).outputs().get("y")
    except Exception:
        return None


def term_of(
    kind: str, held: list[Array | None], values: Mapping[str, Any], shape: tuple[int, ...], free: bool = False
) -> Term | None:
    """Returns what a layer is written down as; `free`: where what is read first has no sizes that are known."""
    layer = layer_of(kind, held, values)
    network = network_of(layer, held, dtype_of(kind, held, values), tuple(-1 for _ in shape) if free else shape)
    sources = {
        # Integers are sizes, axes and rows.
        at: terms.constant(v) if at and (v.dtype.kind == "i" or not v.ndim) else tensor(at, v, free and not at)
        for at, v in enumerate(_given(held))
    }
    try:
        return of_network.terms_of(network, [0], sources)[len(sources)]
    except UNFIT:
        return None


def tensor(number: int, values: Array, free: bool) -> Term:
    return terms.tensor(f"t{number}", str(values.dtype), tuple(-1 if free else n for n in values.shape))


def is_right(term: Term, held: list[Array | None], got: Array | None) -> bool:
    feeds = {f"t{at}": each for at, each in enumerate(_given(held))}
    try:
        value = value_of(term, feeds)
    except Exception:
        # It stands for nothing that a node may be.
        return True
    assert got is not None
    near = 1e-2 if got.dtype == np.float16 else 1e-4
    return value.shape == got.shape and np.allclose(value, got, near, near, equal_nan=True)


def others(name: str, value: Any) -> Iterator[Any]:
    """Yields other values of an attribute."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, 0, -1)
    elif isinstance(value, float):
        yield from (value * 1.25 + 0.01, -value - 1)
    elif isinstance(value, str):
        yield from (other for other in NAMES[name] if other != value)
    elif isinstance(value, tuple):
        for at, entry in enumerate(value):
            yield from ((*value[:at], other, *value[at + 1 :]) for other in others(name, entry))
        yield from (value[::-1], value[:-1], (*value, 1))
    elif isinstance(value, np.ndarray) and value.size:
        yield from (value[::-1].copy(), value[:-1], np.append(value, value[:1]), value.astype(np.float16))


def changed(held: list[Array | None], values: Mapping[str, Any]) -> Iterator[tuple[list[Array | None], dict[str, Any]]]:
    """Yields what is read, and attributes, with one thing changed."""
    yield held, dict(values)
    for name, value in values.items():
        yield from ((held, {**values, name: other}) for other in others(name, value))
    yield held, {**values, "never_heard_of": 1}
    if len(held) > 1:
        yield held[:-1], dict(values)
        if held[1] is not None:
            yield [held[1], held[0], *held[2:]], dict(values)
    yield [*held, X], dict(values)
    for at, each in enumerate(held):
        if each is not None:
            for other in (each[None], each.astype(np.float16), each.astype(np.int32), each.reshape(-1)[:3]):
                yield [*held[:at], other, *held[at + 1 :]], dict(values)


@pytest.mark.parametrize("at", range(len(LAYERS)), ids=lambda at: f"{LAYERS[at][0]}-{at}")
def test_layers_are_written_down_as_what_they_compute(at: int) -> None:
    kind, held, values = LAYERS[at]
    got = computed(kind, held, values)
    assert got is not None
    term = term_of(kind, held, values, got.shape)
    assert term is not None and is_right(term, held, got)


@pytest.mark.parametrize("at", range(len(LAYERS)), ids=lambda at: f"{LAYERS[at][0]}-{at}")
@pytest.mark.parametrize("free", [False, True])
def test_whatever_is_changed_is_written_down_as_that_or_not_at_all(at: int, free: bool) -> None:
    kind, first, known = LAYERS[at]
    for held, values in changed(first, known):
        got = computed(kind, held, values)
        shape = (1,) * X.ndim if got is None else got.shape
        term = term_of(kind, held, values, shape, free)
        assert term is None or is_right(term, held, got), (values, held)


@pytest.mark.parametrize(
    ("places", "rounding", "scale", "is_told"),
    [
        ("ASYMMETRIC", "FLOOR", 1.5, True),
        ("ASYMMETRIC", "CEIL", 1.5, False),
        ("ASYMMETRIC", "HALF_UP", 1.5, False),
        ("HALF_PIXEL", "FLOOR", 3.0, False),
        ("HALF_PIXEL", "HALF_DOWN", 3.0, False),
        ("ALIGN_CORNERS", "FLOOR", 3.0, False),
        ("HALF_PIXEL", "CEIL", 2.0, True),
        ("HALF_PIXEL", "HALF_DOWN", 0.5, True),
    ],
)
def test_nearest_elements_are_told_where_floats_take_them_at_any_size(
    places: str, rounding: str, scale: float, is_told: bool
) -> None:
    modes = {"coordinate_transformation": places, "nearest_rounding": rounding}
    values = {**RESIZE, **modes, "shape": None, "scales": (1.0, 1.0, scale, 1.0)}
    shape = (*X.shape[:2], int(X.shape[2] * scale), X.shape[3])
    assert (term_of("RESIZE", [X], values, shape) is not None) is is_told
