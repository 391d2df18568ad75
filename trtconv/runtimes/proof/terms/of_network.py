"""The terms of a network's layers, by what TensorRT documents of them, as `readback` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from trtconv.graph.interpolation import divides_exactly
from trtconv.graph.types import INTEGERS
from trtconv.runtimes.proof.terms import parts
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.einsum import contracted
from trtconv.runtimes.proof.terms.layer_call import LayerCall
from trtconv.runtimes.proof.terms.lengths import part_of, reshaped_to, settled
from trtconv.runtimes.proof.terms.operands import ints_of
from trtconv.runtimes.proof.terms.term import Sizes, Term, Wordless, is_small
from trtconv.runtimes.proof.terms.windows import Window, convolved, pooled
from trtconv.runtimes.tensorrt.layers import numpy_name
from trtconv.runtimes.tensorrt.readback.call import axes_of
from trtconv.runtimes.tensorrt.readback.execute import KINDS, kernel_results, results_of
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork
from trtconv.runtimes.tensorrt.readback.surface import SURFACES
from trtconv.runtimes.tensorrt.readback.types import numpy_type

Words = Callable[[LayerCall], Term]


def terms_of(network: ReadNetwork, layers: Iterable[int], sources: Mapping[int, Term]) -> dict[int | None, Term | None]:
    """Returns the terms of what layers compute, by the numbers of tensors.

    Args:
        network: The network.
        layers: Their positions.
        sources: What they start from, likewise.

    Raises:
        Wordless: One of them has none.
    """
    results: dict[int | None, Term | None] = {None: None, **dict(sources.items())}
    room = terms.Room()
    for layer in _in_order([network.layers[index] for index in layers], results):
        if len(layer.outputs) != 1:
            raise Wordless("several results")
        result = network.tensors[layer.outputs[0]]
        term = settled(_folded(network, layer, results) or _term_of(layer, result.dtype, results))
        if term.dtype != result.dtype or not _fits(term.sizes, result.shape):
            raise Wordless("a result of another type, or of other sizes")
        room.take([term])
        results[result.index] = term
    return results


def _in_order(layers: list[ReadLayer], results: Mapping[int | None, Term | None]) -> Iterator[ReadLayer]:
    """Yields layers, each after those whose results it reads; most stand so."""
    while layers:
        late = []
        for layer in layers:
            if all(map(results.__contains__, layer.inputs)):
                yield layer
            else:
                late.append(layer)
        if len(late) == len(layers):
            raise Wordless("what it reads is not known")
        layers = late


def _fits(sizes: Sizes, shape: Sizes | None) -> bool:
    """Whether sizes are those that TensorRT inferred, as far as it did: what it knows, and the term does not, counts in
    what comes after."""
    return shape is not None and len(sizes) == len(shape) and all(map(_is_known, sizes, shape))


def _is_known(size: int, inferred: int) -> bool:
    return inferred in (-1, size)


def _term_of(layer: ReadLayer, dtype: str, results: Mapping[int | None, Term | None]) -> Term:
    words = _WORDS.get(layer.kind)
    if words is None:
        raise Wordless(layer.kind)
    call = LayerCall(layer, [results[number] for number in layer.inputs], dtype)
    term = words(call)
    call.finish()
    return term


def _folded(network: ReadNetwork, layer: ReadLayer, results: Mapping[int | None, Term | None]) -> Term | None:
    """Returns what a layer makes of few constants; None where it reads anything else."""
    if layer.kind not in _FOLDED or layer.values.get("op") in _UNFOLDED:
        return None
    arrays = {number: term.array for number in layer.inputs if (term := results[number]) is not None}
    if not arrays or not all(map(is_small, arrays.values())):
        return None
    surface = SURFACES[layer.kind]
    if not layer.values.keys() <= {*surface.attributes, *surface.newer}:
        raise Wordless("more than is written down here")
    values = kernel_results(network, layer, KINDS[layer.kind], arrays.__getitem__, _MOST_MEGABYTES)
    (result,) = results_of(network, layer, values)
    return terms.constant(result)


_MOST_MEGABYTES = 1.0
_FOLDED = frozenset(
    (  # noqa: SIM905
        "CAST CONCATENATION CUMULATIVE ELEMENTWISE FILL GATHER IDENTITY SELECT SHUFFLE SLICE SQUEEZE UNARY UNSQUEEZE"
    ).split()
)
"""Kinds of layer that are computed where all that they read is few constants: sizes, axes, scales."""
_UNFOLDED = frozenset(
    (  # noqa: SIM905
        "ACOS ACOSH ASIN ASINH ATAN ATANH COS COSH ERF EXP ISINF ISNAN LOG POW RECIP ROUND SIN SINH TAN XOR"
    ).split()
)
"""Not folded: no sizes come of these, and `known` does not compute them of nodes either."""


def _constant(call: LayerCall) -> Term:
    # Types that NumPy has not are read as others of their size.
    return terms.constant(call.weights("weights").view(numpy_type(call.dtype)).reshape(call.take("shape")))


def _cast(call: LayerCall) -> Term:
    if call.has("to_type") and numpy_name(call.take("to_type")) != call.dtype:
        raise Wordless("a type that is told later")
    if call.dtype == "int8" and call.operand().dtype not in INTEGERS:
        raise Wordless("a fraction, which TensorRT 8.6 rounds and does not cut off")
    return terms.cast(call.operand(), call.dtype)


def _shape(call: LayerCall) -> Term:
    source = call.operand()
    if source.is_static:
        return terms.constant(np.array(source.sizes, numpy_type(call.dtype)))
    return parts.shape_of(source, call.dtype)


def _gather(call: LayerCall) -> Term:
    mode, shared, axis = call.take("mode"), call.take("num_elementwise_dims"), call.take("axis")
    source, indices = call.operand(0), call.operand(1)
    while indices.op == "cast" and {indices.dtype, indices.source.dtype} <= INTEGERS:
        # An index that a narrower type does not hold is beyond the end, as the model has it.
        indices = indices.source
    if mode == "ND":
        return parts.gathered_nd(source, indices, shared)
    if mode != "DEFAULT" or shared:
        raise Wordless("rows of its own")
    return parts.gathered(source, indices, axis)


def _einsum(call: LayerCall) -> Term:
    return contracted(call.take("equation"), call.all())


def _scale(call: LayerCall) -> Term:
    result, axis = call.operand(), call.take("channel_axis")
    factors, summands, powers = (call.weights(name) for name in ("scale", "shift", "power"))
    if call.take("mode") != "CHANNEL" or not 0 <= axis < result.rank or (powers != 1).any():
        raise Wordless("a scale of its own")
    shape = tuple(-1 if at == axis else 1 for at in range(result.rank))
    for op, values in (("PROD", factors), ("SUM", summands)):
        if values.size not in (0, result.sizes[axis]):
            raise Wordless("a scale of its own")
        result = terms.joined(op, result, terms.constant(values.reshape(shape))) if values.size else result
    return result


def _select(call: LayerCall) -> Term:
    return terms.selection(call.operand(0), call.operand(1), call.operand(2))


def _resize(call: LayerCall) -> Term:
    source, target, shape, scales = call.operand(), call.ints(1), call.take("shape"), call.take("scales")
    sizes = target or shape
    growth = parts.Resizing(tuple(sizes)) if sizes else parts.grown(source, scales or ())
    if call.take("exclude_outside"):
        raise Wordless("weights of its own")
    mode, places = call.take("resize_mode"), call.take("coordinate_transformation")
    nearest, cubic = call.take("nearest_rounding"), call.take("cubic_coeff")
    is_exact = bool(scales) and not sizes and all(map(divides_exactly, scales))
    is_plain = places == "ASYMMETRIC" and nearest == "FLOOR"
    if mode == "NEAREST" and not is_plain and not is_exact:
        # At some sizes a place lies on the border between two elements, and TensorRT was seen to take either.
        raise Wordless("rounded places that no float has")
    single = call.take("selector_for_single_pixel")
    return parts.resized(source, growth, mode, places, nearest=nearest, cubic=cubic, single=single)


_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "RELU": (),
    "SIGMOID": (),
    "TANH": (),
    "SOFTSIGN": (),
    "GELU_ERF": (),
    "GELU_TANH": (),
    "LEAKY_RELU": ("alpha",),
    "ELU": ("alpha",),
    "THRESHOLDED_RELU": ("alpha",),
    "HARD_SIGMOID": ("alpha", "beta"),
    "CLIP": ("alpha", "beta"),
    "SELU": ("alpha", "beta"),
    "SOFTPLUS": ("alpha", "beta"),
}
"""Kinds of activation to the numbers that count in them."""


def _activation(call: LayerCall) -> Term:
    kind = call.take("type")
    if kind not in _ACTIVATIONS:
        raise Wordless(kind)
    details = [call.number(name) for name in _ACTIVATIONS[kind]]
    call.drop("alpha", "beta")
    return terms.applied(kind, call.operand(), *details)


def _unary(call: LayerCall) -> Term:
    return terms.applied(call.take("op"), call.operand())


def _elementwise(call: LayerCall) -> Term:
    one, other = call.operand(0), call.operand(1)
    if one.rank != other.rank:
        raise Wordless("operands of several ranks")
    return terms.joined(call.take("op"), one, other)


def _prelu(call: LayerCall) -> Term:
    return terms.joined("PRELU", call.operand(0), call.operand(1))


def _shuffle(call: LayerCall) -> Term:
    result, operand = terms.transposed(call.operand(), call.take("first_transpose")), call.optional(1)
    target, zero_copies = call.take("reshape_dims"), bool(call.take("zero_is_placeholder"))
    if operand is not None and operand.array is None:
        result = reshaped_to(result, operand, zero_copies)
    elif operand is not None or target is not None:
        sizes = target if operand is None or operand.array is None else operand.array.reshape(-1).tolist()
        result = terms.reshaped(result, sizes, zero_copies)
    return terms.transposed(result, call.take("second_transpose"))


def _squeeze(call: LayerCall) -> Term:
    return terms.squeezed(call.operand(), call.ints(1))


def _unsqueeze(call: LayerCall) -> Term:
    axes = call.ints(1)
    if not axes:
        raise Wordless("axes of its own")
    return terms.unsqueezed(call.operand(), axes)


def _matmul(call: LayerCall) -> Term:
    return terms.multiplied(*(_turned(call.operand(at), call.take(f"op{at}")) for at in (0, 1)))


def _turned(matrix: Term, how: str) -> Term:
    if how not in ("NONE", "TRANSPOSE") or matrix.rank < 2:
        raise Wordless(how)
    order = [*range(matrix.rank - 2), matrix.rank - 1, matrix.rank - 2]
    return terms.transposed(matrix, order) if how == "TRANSPOSE" else matrix


def _convolution(call: LayerCall) -> Term:
    if call.take("padding_mode") != "EXPLICIT_ROUND_DOWN":
        raise Wordless("pads that are computed")
    source, kernel_operand, bias_operand = call.operand(0), call.optional(1), call.optional(2)
    transpose = call.kind == "DECONVOLUTION"
    weights, bias = call.weights("kernel"), call.weights("bias")
    shape, groups, maps = tuple(call.take("kernel_size_nd")), call.take("num_groups"), call.take("num_output_maps")
    channels = (-1, maps // groups) if transpose else (maps, -1)
    kernel = kernel_operand or terms.constant(weights.reshape(*channels, *shape))
    if kernel.sizes[2:] != shape:
        raise Wordless("a kernel of another shape")
    if (kernel.sizes[1] * groups if transpose else kernel.sizes[0]) != maps:
        raise Wordless("other maps")
    own = terms.constant(bias) if bias.size else None
    window = _window(call, tuple(call.take("dilation_nd")))
    return convolved(source, kernel, window, bias_operand or own, groups, transpose)


def _window(call: LayerCall, dilations: tuple[int, ...]) -> Window:
    strides, low, high = (tuple(call.take(name)) for name in ("stride_nd", "pre_padding", "post_padding"))
    return Window(strides, low, high, dilations)


def _pooling(call: LayerCall) -> Term:
    shape, counts = tuple(call.take("window_size_nd")), not call.take("average_count_excludes_padding")
    call.drop("blend_factor")
    mode = call.take("padding_mode")
    if mode not in ("EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP"):
        raise Wordless("pads that are computed")
    window, rounds_up = _window(call, (1,) * len(shape)), mode == "EXPLICIT_ROUND_UP"
    return pooled(call.take("type"), call.operand(), shape, window, counts, rounds_up)


def _reduce(call: LayerCall) -> Term:
    return terms.reduced(call.take("op"), call.operand(), axes_of(call.take("axes")), bool(call.take("keep_dims")))


def _cumulative(call: LayerCall) -> Term:
    (axis,) = call.ints(1) or []
    if call.take("op") != "SUM":
        raise Wordless("an operation of its own")
    return terms.accumulated(call.operand(0), axis, bool(call.take("exclusive")), bool(call.take("reverse")))


def _softmax(call: LayerCall) -> Term:
    (axis,) = axes_of(call.take("axes"))
    return terms.softened(call.operand(), axis)


def _concatenation(call: LayerCall) -> Term:
    return parts.concatenated(call.all(), call.take("axis"))


def _slice(call: LayerCall) -> Term:
    source, own_axes = call.operand(), call.take("axes") if call.has("axes") else None
    axes = call.ints(5) or own_axes
    rows = []
    for at, name in ((1, "start"), (2, "shape"), (3, "stride")):
        operand, attribute = call.optional(at), call.take(name)
        if operand is not None and operand.op == "lengths" and name == "shape" and not axes:
            rows.append(part_of(source, operand))
        else:
            rows.append(attribute if operand is None else ints_of(operand))
    mode, fill = call.take("mode"), call.scalar(4, 0.0)
    if any(row is None for row in rows):
        raise Wordless("a part that is computed")
    starts, sizes, steps = _on_all_axes(source, axes, rows) if axes else rows
    if set(steps) != {1} or not source.is_static:
        return parts.cut(source, starts, sizes, steps)
    rest = [start + size - n for start, size, n in zip(starts, sizes, source.sizes, strict=True)]
    if max((*(-start for start in starts), *rest)) <= 0:
        # Inside, all modes are one.
        return parts.cut(source, starts, sizes, steps)
    return parts.padded(source, [-start for start in starts], rest, mode, fill)


def _on_all_axes(source: Term, axes: Sequence[int], rows: Sequence[Sequence[int]]) -> list[list[int]]:
    if len({source.axis(axis) for axis in axes}) != len(axes):
        raise Wordless("an axis twice")
    whole = [[0] * source.rank, list(source.sizes), [1] * source.rank]
    for values, row in zip(whole, rows, strict=True):
        for axis, value in zip(axes, row, strict=True):
            values[source.axis(axis)] = value
    return whole


def _normalization(call: LayerCall) -> Term:
    call.drop("is_v2")
    if call.take("num_groups") != 1:
        raise Wordless("groups")
    axes, epsilon = axes_of(call.take("axes")), call.take("epsilon")
    return terms.normalized(call.operand(0), call.operand(1), call.optional(2), axes, epsilon)


_WORDS: dict[str, Words] = {
    "ACTIVATION": _activation,
    "CAST": _cast,
    "CONCATENATION": _concatenation,
    "CONSTANT": _constant,
    "CONVOLUTION": _convolution,
    "CUMULATIVE": _cumulative,
    "DECONVOLUTION": _convolution,
    "EINSUM": _einsum,
    "ELEMENTWISE": _elementwise,
    "GATHER": _gather,
    "IDENTITY": _cast,
    "MATRIX_MULTIPLY": _matmul,
    "NORMALIZATION": _normalization,
    "PARAMETRIC_RELU": _prelu,
    "POOLING": _pooling,
    "REDUCE": _reduce,
    "RESIZE": _resize,
    "SCALE": _scale,
    "SELECT": _select,
    "SHAPE": _shape,
    "SHUFFLE": _shuffle,
    "SLICE": _slice,
    "SOFTMAX": _softmax,
    "SQUEEZE": _squeeze,
    "UNARY": _unary,
    "UNSQUEEZE": _unsqueeze,
}
"""Kinds of layer to the words for them."""
