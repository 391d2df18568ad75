"""The terms of nodes that add elements up: convolutions, products of matrices, means."""

from __future__ import annotations

import functools
import math

import numpy as np

from trtconv.graph.deconv import crops, extend_kernel, fold, geometry_of
from trtconv.runtimes.proof.batch_norm import folded
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.einsum import contracted
from trtconv.runtimes.proof.terms.node_call import NodeCall, Words, axes_of
from trtconv.runtimes.proof.terms.term import MAX_ELEMENTS, Term, Wordless
from trtconv.runtimes.proof.terms.windows import Window, convolved, pooled


def _matmul(call: NodeCall) -> Term:
    return terms.multiplied(call.operand(0), call.operand(1))


def _gemm(call: NodeCall) -> Term:
    if call.take("alpha", 1.0) != 1 or call.take("beta", 1.0) != 1:
        raise Wordless("factors")
    a, b = (_turned(call.operand(at), call.flag(name, 0)) for at, name in enumerate(("transA", "transB")))
    product, bias = terms.multiplied(a, b), call.optional(2)
    return product if bias is None else terms.joined("SUM", product, bias)


def _turned(matrix: Term, turn: bool) -> Term:
    if matrix.rank != 2:
        raise Wordless("no matrix")
    return terms.transposed(matrix, (1, 0)) if turn else matrix


def _window(call: NodeCall, axes: int) -> Window:
    if call.take("auto_pad", b"NOTSET") != b"NOTSET":
        raise Wordless("pads that are computed")
    pads = tuple(call.take("pads", (0,) * 2 * axes))
    strides, dilations = (tuple(call.take(name, (1,) * axes)) for name in ("strides", "dilations"))
    return Window(strides, pads[:axes], pads[axes:], dilations)


def _convolution(call: NodeCall) -> Term:
    source, kernel, bias = call.operand(0), call.operand(1), call.optional(2)
    if tuple(call.take("kernel_shape", kernel.sizes[2:])) != kernel.sizes[2:]:
        raise Wordless("a kernel of another shape")
    return convolved(source, kernel, _window(call, source.rank - 2), bias, call.take("group", 1), transpose=False)


def _deconvolution(call: NodeCall) -> Term:
    source, kernel, bias = call.operand(0), call.operand(1), call.optional(2)
    geometry = geometry_of(call.take_all(), kernel.sizes)
    if isinstance(geometry, str):
        raise Wordless(geometry)
    window = crops(geometry, None if -1 in source.sizes else source.sizes[2:])
    if window is None:
        raise Wordless("sizes that are not known")
    growth = fold(geometry, window)
    if growth.is_needed:
        # Zeros at its ends, so that none is to be cut off of less than nothing.
        if kernel.array is None:
            raise Wordless("a kernel that is computed")
        shape = [sum(sizes) for sizes in zip(growth.low, kernel.sizes[2:], growth.high, strict=True)]
        if math.prod((*kernel.sizes[:2], *shape)) > max(MAX_ELEMENTS, _MOST_GROWTH * kernel.array.size):
            raise Wordless("zeros for the most part")
        kernel = terms.constant(extend_kernel(kernel.array, growth, 0))
    low, high = (tuple(getattr(crop, end) for crop in growth.crops) for end in ("begin", "end"))
    moved = Window(geometry.strides, low, high, geometry.dilations)
    return convolved(source, kernel, moved, bias, geometry.group, transpose=True)


def _pool(kind: str, call: NodeCall) -> Term:
    source = call.operand()
    shape = tuple(call.take("kernel_shape", ()))
    counts = call.flag("count_include_pad", 0)
    rounds_up = call.flag("ceil_mode", 0)
    if call.take("storage_order", 0):
        raise Wordless("a pool of its own")
    return pooled(kind, source, shape, _window(call, len(shape)), counts, rounds_up)


def _global_pool(op: str, call: NodeCall) -> Term:
    source = call.operand()
    return terms.reduced(op, source, range(2, source.rank), keep=True)


def _reduction(op: str, call: NodeCall) -> Term:
    return _reduced(op, call.operand(), call, 13 if op == "SUM" else 18)


def _norm(how: str, call: NodeCall) -> Term:
    """Sums of magnitudes, or of squares, and their roots."""
    source = call.operand()
    parts = terms.applied("ABS", source) if how == "L1" else terms.joined("PROD", source, source)
    total = _reduced("SUM", parts, call, 18)
    return terms.applied("SQRT", total) if how == "L2" else total


def _reduced(op: str, source: Term, call: NodeCall, as_input_from: int) -> Term:
    # It says something of no axes alone.
    call.take("noop_with_empty_axes", None)
    return terms.reduced(op, source, axes_of(call, as_input_from), keep=call.flag("keepdims", 1))


def _cumulative_sum(call: NodeCall) -> Term:
    source, (axis,) = call.operand(0), call.ints(1) or []
    return terms.accumulated(source, axis, call.flag("exclusive", 0), call.flag("reverse", 0))


def _einsum(call: NodeCall) -> Term:
    return contracted(call.take("equation", b"").decode(), call.all())


_REDUCED = {"ReduceMean": "AVG", "ReduceSum": "SUM", "ReduceMax": "MAX", "ReduceMin": "MIN", "ReduceProd": "PROD"}


def _softmax(call: NodeCall) -> Term:
    source = call.operand()
    axis = source.axis(call.take("axis", -1 if call.opset >= 13 else 1))
    if call.opset < 13 and axis != source.rank - 1:
        raise Wordless("axes that are made one")
    return terms.softened(source, axis)


def _layer_normalization(call: NodeCall) -> Term:
    source, scale, bias = call.operand(0), call.operand(1), call.optional(2)
    axis = source.axis(call.take("axis", -1))
    if call.take("stash_type", 1) != 1:
        raise Wordless("a normalisation of its own")
    axes, epsilon = range(axis, source.rank), call.take("epsilon", 1e-5)
    return terms.normalized(source, _aligned(scale, source), bias and _aligned(bias, source), axes, epsilon)


def _aligned(scale: Term, source: Term) -> Term:
    if scale.rank > source.rank:
        raise Wordless("scales of more axes")
    return terms.unsqueezed(scale, range(source.rank - scale.rank))


def _instance_normalization(call: NodeCall) -> Term:
    source = call.operand(0)
    if source.rank < 3:
        raise Wordless("no image")
    shape = (1, -1, *(1,) * (source.rank - 2))
    scale, bias = (terms.reshaped(call.operand(at), shape) for at in (1, 2))
    return terms.normalized(source, scale, bias, range(2, source.rank), call.take("epsilon", 1e-5))


def _batch_normalization(call: NodeCall) -> Term:
    source = call.operand(0)
    shape = (1, -1, *(1,) * (source.rank - 2))
    parameters = [call.operand(at) for at in (1, 2, 3, 4)]
    epsilon = call.take("epsilon", 1e-5)
    call.take("momentum", None)
    if call.take("spatial", 1) != 1 or call.take("training_mode", 0) or source.rank < 2:
        raise Wordless("a normalisation of its own")
    scale, bias, mean, variance = (terms.reshaped(parameter, shape) for parameter in parameters)
    even = terms.joined("DIV", terms.joined("SUB", source, mean), _deviation(variance, epsilon))
    written_out = terms.joined("SUM", terms.joined("PROD", even, scale), bias)
    arrays = [parameter.array for parameter in parameters if parameter.array is not None]
    if len(arrays) < len(parameters):
        return written_out
    factor, summand = (terms.constant_near(values, source.dtype, scale.sizes) for values in folded(arrays, epsilon))
    return terms.either(written_out, terms.joined("SUM", terms.joined("PROD", source, factor), summand))


def _deviation(variance: Term, epsilon: float) -> Term:
    if variance.array is not None:
        return terms.constant(np.sqrt(variance.array + variance.array.dtype.type(epsilon)))
    return terms.applied("SQRT", terms.joined("SUM", variance, terms.constant(np.array(epsilon, variance.dtype))))


_MOST_GROWTH = 16


WORDS: dict[str, Words] = {
    **{op: functools.partial(_reduction, name) for op, name in _REDUCED.items()},
    **{f"Reduce{how}": functools.partial(_norm, how) for how in ("L1", "L2", "SumSquare")},
    "AveragePool": functools.partial(_pool, "AVERAGE"),
    "BatchNormalization": _batch_normalization,
    "Conv": _convolution,
    "ConvTranspose": _deconvolution,
    "CumSum": _cumulative_sum,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GlobalAveragePool": functools.partial(_global_pool, "AVG"),
    "GlobalMaxPool": functools.partial(_global_pool, "MAX"),
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "MatMul": _matmul,
    "MaxPool": functools.partial(_pool, "MAX"),
    "Softmax": _softmax,
}
"""Operators to the words for them."""
