"""Writes operators of classical machine learning that are arithmetic in ONNX's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.fused_parts import option
from trtconv.passes.spelling.writer import Unwritable, Writer

_WIDEST_INTEGERS = 2
"""Bytes of integers that float32 holds all of."""


class ExpandLearned(Spelling):
    """Writes operators of ai.onnx.ml that scale, fill in, select, or multiply with weights, in those of ONNX.

    Models that skl2onnx writes have them in front of what TensorRT is to run, and its parser knows none.

    Before:
        <ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>
        g (float[n,2] x) => (float[n,2] y) { y = ai.onnx.ml.Scaler <offset = [1.0, 2.0], scale = [3.0, 4.0]> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,2] x) => (float[n,2] y) <float[2] o = {1, 2}, float[2] s = {3, 4}>
        { d = Sub (x, o)  y = Mul (d, s) }
    """

    name = "expand-learned"
    domains = ("ai.onnx.ml",)

    def write(self, writer: Writer, target: Target) -> str | None:
        _FORMS[writer.node.op_type](writer)
        return None


def _single(writer: Writer, slot: int = 0) -> str:
    """Returns an input in float32; raises `Unwritable` where that has not all its values."""
    name = writer.input(slot)
    dtype = writer.dtype(name)
    if dtype == np.float32:
        return name
    if dtype.kind not in "iub" or dtype.itemsize > _WIDEST_INTEGERS:
        raise Unwritable(f"its numbers are of {dtype}, of which float32 has not all")
    return writer.cast(name, np.float32)


def _row(writer: Writer, name: str, default: float) -> NDArray[np.float32]:
    return np.array(writer.attrs.get(name) or [default], np.float32)


def _scaler(writer: Writer) -> None:
    moved = writer("Sub", _single(writer), _row(writer, "offset", 0.0))
    writer("Mul", moved, _row(writer, "scale", 1.0), to=writer.output())


def _normalizer(writer: Writer) -> None:
    x, norm = _single(writer), option(writer, "norm", "MAX")
    if norm not in ("L1", "L2") or len(writer.shape(writer.input(0))) != 2:
        raise Unwritable(f"what it divides by, {norm}, has no one reading")
    size = writer.reduce(f"Reduce{norm}", x, [1])
    # A row of zeros stays as it is.
    divisor = writer("Where", writer("Equal", size, np.float32(0)), np.float32(1), size)
    writer("Div", x, divisor, to=writer.output())


def _regressor(writer: Writer) -> None:
    if option(writer, "post_transform", "NONE") != "NONE":
        raise Unwritable("it transforms what it computes")
    weights, targets = _row(writer, "coefficients", 0.0), option(writer, "targets", 1)
    if targets < 1 or weights.size % targets:
        raise Unwritable(f"it has {weights.size} coefficients for {targets} targets")
    product = writer("MatMul", _single(writer), np.ascontiguousarray(weights.reshape(targets, -1).T))
    writer("Add", product, _row(writer, "intercepts", 0.0), to=writer.output())


def _imputer(writer: Writer) -> None:
    x = writer.input(0)
    if writer.dtype(x) != np.float32 or "imputed_value_floats" not in writer.attrs:
        raise Unwritable("it fills in integers")
    missing = option(writer, "replaced_value_float", 0.0)
    holes = writer("IsNaN", x) if np.isnan(missing) else writer("Equal", x, np.float32(missing))
    writer("Where", holes, _row(writer, "imputed_value_floats", 0.0), x, to=writer.output())


def _binarizer(writer: Writer) -> None:
    above = writer("Greater", _single(writer), np.float32(option(writer, "threshold", 0.0)))
    writer.cast(above, np.float32, to=writer.output())


def _vectorizer(writer: Writer) -> None:
    if any(len(writer.shape(name)) != 2 for name in writer.node.input):
        raise Unwritable("its inputs have other than two axes")
    parts = [_single(writer, slot) for slot in range(len(writer.node.input))]
    writer("Concat", *parts, axis=1, to=writer.output())


def _extractor(writer: Writer) -> None:
    if len(writer.shape(writer.input(0))) < 2:
        raise Unwritable("its input has one axis, and what it makes two")
    places = writer.reshape(writer.input(1), [-1])
    writer("Gather", writer.input(0), places, axis=-1, to=writer.output())


_FORMS: Mapping[str, Callable[[Writer], None]] = {
    "ArrayFeatureExtractor": _extractor,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _vectorizer,
    "Imputer": _imputer,
    "LinearRegressor": _regressor,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
}
ExpandLearned.ops = frozenset(_FORMS)
