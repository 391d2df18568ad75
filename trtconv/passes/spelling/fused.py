"""Writes the operators that ONNX Runtime's optimiser fuses in ONNX's own, as ONNX Runtime computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.graph.types import MICROSOFT, ONNX_DOMAINS
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.fused_attention import attention, embedding, multi_head, quantized_attention, rotary
from trtconv.passes.spelling.fused_blocks import matmul_of_blocks
from trtconv.passes.spelling.fused_parts import (
    LAYER_NORM_OPSET,
    SKIP_EPSILON,
    activation,
    floats_like,
    matmul_of_integers,
    normalized,
    option,
    root_normalized,
    sum_of,
)
from trtconv.passes.spelling.writer import Unwritable, Writer

_IN_ONNX_DOMAIN = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""Operators of ONNX Runtime that its files have in ONNX's domain, which does not know them, or not at their opset."""

_KERNEL = 3
"""The input of QLinearConv that is its kernel."""
_POOLS_BYTES = 12
"""The opset from which MaxPool takes int8 and uint8."""


class ExpandFused(Spelling):
    """Writes operators of ONNX Runtime's own domain, which its optimiser fuses, in those of ONNX.

    Models that ONNX Runtime optimised and saved, or its optimiser for transformers, have them: FusedConv, BiasGelu,
    SkipLayerNormalization, Attention. TensorRT's parser knows none, or takes one of ONNX's of the same name for it.

    Before:
        <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[2,4] x) => (float[2,4] y) { y = com.microsoft.QuickGelu <alpha = 2.0> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,4] x) => (float[2,4] y) <float two = {2}> { a = Mul (x, two)  s = Sigmoid (a)  y = Mul (x, s) }
    """

    name = "expand-fused"
    domains = (*ONNX_DOMAINS, MICROSOFT)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        if scope.columns.ops[index] == "QLinearConv":
            attributes = scope.columns.attributes[index]
            is_last = any(attribute.name == "channels_last" and attribute.i for attribute in attributes)
            return is_last and scope.columns.domains[index] == MICROSOFT
        return (scope.columns.domains[index] == MICROSOFT) != (scope.columns.ops[index] in _IN_ONNX_DOMAIN)

    def write(self, writer: Writer, target: Target) -> str | None:
        _FORMS[writer.node.op_type](writer)
        return None


def _gelu(writer: Writer) -> None:
    """x * (1 + erf(x / sqrt(2))) / 2, of the input and a bias."""
    x = sum_of(writer, 0, 1)
    half, one, root = floats_like(writer, 0.5, 1.0, np.sqrt(0.5))
    wave = writer("Add", writer("Erf", writer("Mul", x, root)), one)
    writer("Mul", writer("Mul", x, half), wave, to=writer.output())


def _fast_gelu(writer: Writer) -> None:
    x = sum_of(writer, 0, 1)
    half, one, cubic, linear = floats_like(writer, 0.5, 1.0, 0.044715 * np.sqrt(2 / np.pi), np.sqrt(2 / np.pi))
    inner = writer("Mul", x, writer("Add", writer("Mul", cubic, writer("Mul", x, x)), linear))
    writer("Mul", writer("Mul", x, half), writer("Add", writer("Tanh", inner), one), to=writer.output())


def _quick_gelu(writer: Writer) -> None:
    x = writer.input(0)
    (alpha,) = floats_like(writer, option(writer, "alpha", 1.702))
    writer("Mul", x, writer("Sigmoid", writer("Mul", x, alpha)), to=writer.output())


def _conv(writer: Writer) -> None:
    """A Conv, what is added to it, and an activation."""
    attrs = {key: value for key, value in writer.attrs.items() if not key.startswith("activation")}
    last = bool(writer.input(3) or option(writer, "activation", ""))
    result = writer("Conv", *filter(None, map(writer.input, range(3))), to="" if last else writer.output(), **attrs)
    if writer.input(3):
        is_end = not option(writer, "activation", "")
        result = writer("Add", result, writer.input(3), to=writer.output() if is_end else "")
    if option(writer, "activation", ""):
        activation(writer, result, list(writer.attrs.get("activation_params", ())))


def _gemm(writer: Writer) -> None:
    attrs = {key: value for key, value in writer.attrs.items() if not key.startswith("activation")}
    result = writer("Gemm", *filter(None, map(writer.input, range(3))), **attrs)
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    activation(writer, result, [writer.attrs[name] for name in names if name in writer.attrs])


def _matmul(writer: Writer) -> None:
    """A MatMul of operands that are transposed, scaled."""
    sides = [_turned(writer, slot, side) for slot, side in enumerate("AB")]
    alpha = option(writer, "alpha", 1.0)
    result = writer("MatMul", *sides, to=writer.output() if alpha == 1 else "")
    if alpha != 1:
        writer("Mul", result, *floats_like(writer, alpha, slots=(0, 1)), to=writer.output())


def _turned(writer: Writer, slot: int, side: str) -> str:
    name, swaps, batch = writer.input(slot), option(writer, f"trans{side}", 0), option(writer, f"transBatch{side}", 0)
    if not (swaps or batch):
        return name
    rank = len(writer.shape(name))
    order = list(range(rank))
    if batch:
        order = [*order[1:-1], 0, order[-1]] if rank > 2 else order
    if swaps and rank > 1:
        order[-2:] = order[:-3:-1]
    return writer("Transpose", name, perm=order) if order != list(range(rank)) else name


def _skip_norm(writer: Writer) -> None:
    _skipped(writer, 4, lambda total, to: normalized(writer, total, writer.input(2), writer.input(3), to))


def _skip_root_norm(writer: Writer) -> None:
    if writer.output(1):
        raise Unwritable("its mean is asked for, which it does not compute: leave that output out")
    epsilon = option(writer, "epsilon", SKIP_EPSILON)
    _skipped(writer, 3, lambda total, to: root_normalized(writer, total, writer.input(2), to, epsilon))


def _skipped(writer: Writer, bias: int, norm: Callable[[str, str], object]) -> None:
    """Normalizes the sum of two inputs and a bias."""
    total = writer("Add", writer.input(0), writer.input(1), to="" if writer.input(bias) else writer.output(3))
    if writer.input(bias):
        total = writer("Add", total, writer.input(bias), to=writer.output(3))
    norm(total, writer.output())
    if writer.output(1) or writer.output(2):
        _moments(writer, [writer.input(slot) for slot in (0, 1, bias) if writer.input(slot)])


def _moments(writer: Writer, terms: Sequence[str]) -> None:
    """Makes the outputs of the mean of a sum and of one over its deviation: float32, whatever the terms are."""
    total, *rest = (name if writer.dtype(name) == np.float32 else writer.cast(name, np.float32) for name in terms)
    for term in rest:
        total = writer("Add", total, term)
    if writer.node.op_type == "SkipLayerNormalization":
        total = writer("Sub", total, writer.reduce("ReduceMean", total, [-1], to=writer.output(1)))
    if writer.output(2):
        variance = writer.reduce("ReduceMean", writer("Mul", total, total), [-1])
        epsilon = np.array(option(writer, "epsilon", SKIP_EPSILON), np.float32)
        writer("Reciprocal", writer("Sqrt", writer("Add", variance, epsilon)), to=writer.output(2))


def _norm(writer: Writer) -> None:
    """LayerNormalization of an opset in which ONNX has none."""
    if writer.opset >= LAYER_NORM_OPSET:
        raise Unwritable
    if writer.output(1) or writer.output(2) or option(writer, "axis", -1) != -1:
        raise Unwritable("it normalizes several axes, or its mean is asked for")
    x, scale, bias = map(writer.input, range(3))
    normalized(writer, x, scale, bias, writer.output(), option(writer, "epsilon", 1e-5))


def _root_norm(writer: Writer) -> None:
    if writer.output(1) or option(writer, "axis", -1) != -1:
        raise Unwritable("it normalizes several axes, or its variance is asked for")
    root_normalized(writer, writer.input(0), writer.input(1), writer.output(), option(writer, "epsilon", 1e-5))


def _dynamic_matmul(writer: Writer) -> None:
    """A float matrix, quantised by its own range, times one of integers."""
    a, scale, zero = writer("DynamicQuantizeLinear", writer.input(0), outputs=3)
    slots = (a, writer.input(1), scale, writer.input(2), zero, writer.input(3), writer.input(4))
    matmul_of_integers(writer, *slots, to=writer.output())


def _integer_matmul(writer: Writer) -> None:
    matmul_of_integers(writer, *map(writer.input, range(7)), to=writer.output())


def _channels_last(writer: Writer) -> None:
    """A quantised convolution or a MaxPool whose channels come last, as ONNX Runtime lays them out for processors."""
    op = writer.node.op_type.removeprefix("Nhwc")
    if op == "MaxPool" and writer.opset < _POOLS_BYTES:
        raise Unwritable(f"opset {writer.opset} has no MaxPool of bytes")
    rank = len(writer.attrs["kernel_shape"]) + 2 if op == "MaxPool" else len(writer.shape(writer.input(_KERNEL)))
    spatial = range(1, rank - 1)
    attrs = {key: value for key, value in writer.attrs.items() if key != "channels_last"}
    first = writer("Transpose", writer.input(0), perm=[0, rank - 1, *spatial])
    result = writer(op, first, *writer.node.input[1:], **attrs)
    writer("Transpose", result, perm=[0, *(axis + 1 for axis in spatial), 1], to=writer.output())


_FORMS: Mapping[str, Callable[[Writer], Any]] = {
    "Attention": attention,
    "BiasGelu": _gelu,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "EmbedLayerNormalization": embedding,
    "FastGelu": _fast_gelu,
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "Gelu": _gelu,
    "LayerNormalization": _norm,
    "MatMulIntegerToFloat": _integer_matmul,
    "MatMulNBits": matmul_of_blocks,
    "MultiHeadAttention": multi_head,
    "NhwcMaxPool": _channels_last,
    "QAttention": quantized_attention,
    "QLinearConv": _channels_last,
    "QuickGelu": _quick_gelu,
    "RotaryEmbedding": rotary,
    "SimplifiedLayerNormalization": _root_norm,
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_root_norm,
}
ExpandFused.ops = frozenset(_FORMS)
