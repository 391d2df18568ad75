"""The terms of a network's layers, by what TensorRT documents of them, as `readback` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.term import Array, Term, Wordless, is_small
from trtconv.runtimes.proof.terms.windows import Window, convolved, pooled
from trtconv.runtimes.tensorrt.layers import numpy_name
from trtconv.runtimes.tensorrt.readback.call import axes_of
from trtconv.runtimes.tensorrt.readback.execute import KINDS, results_of
from trtconv.runtimes.tensorrt.readback.records import NotProven, ReadLayer, ReadNetwork
from trtconv.runtimes.tensorrt.readback.types import numpy_type


class Call:
    """One layer with what it reads.

    Args:
        layer: The layer.
        inputs: Terms of its inputs; None where an optional one is absent.
        dtype: Type of its result.
    """

    def __init__(self, layer: ReadLayer, inputs: Sequence[Term | None], dtype: str) -> None:
        self.kind, self.dtype = layer.kind, dtype
        self._inputs = list(inputs)
        self._values = dict(layer.values)

    def take(self, name: str) -> Any:
        """Returns an attribute, once; what nobody takes has no words, nor what is not there."""
        if name not in self._values:
            raise Wordless(f"no {name}")
        return self._values.pop(name)

    def has(self, name: str) -> bool:
        """Whether there is an attribute that only some versions have, and nobody took it."""
        return name in self._values

    def number(self, name: str) -> float:
        """Returns an attribute as the number that 32 bits hold."""
        return float(np.float32(self.take(name)))

    def drop(self, *names: str) -> None:
        """Takes attributes that say nothing here."""
        for name in names:
            self._values.pop(name, None)

    def operand(self, index: int = 0) -> Term:
        """Returns an input that must be there."""
        given = self.optional(index)
        if given is None:
            raise Wordless(f"no input {index}")
        return given

    def optional(self, index: int) -> Term | None:
        """Returns an input; None where it is absent. What nobody asks for has no words."""
        if index >= len(self._inputs):
            return None
        given, self._inputs[index] = self._inputs[index], None
        return given

    def ints(self, index: int) -> list[int] | None:
        """Returns the values of an input that holds sizes or axes; None where it is absent."""
        given = self.optional(index)
        if given is None:
            return None
        if given.array is None or given.array.dtype.kind not in "iu":
            raise Wordless("sizes that are computed")
        return [int(value) for value in given.array.reshape(-1)]

    def weights(self, name: str) -> Array:
        """Returns weights; empty where there are none."""
        values = self.take(name)
        if not isinstance(values, np.ndarray):
            raise Wordless("weights that cannot be read")
        return values

    def finish(self) -> None:
        """Raises `Wordless` where something was not asked for."""
        if self._values or any(given is not None for given in self._inputs):
            raise Wordless("more than is written down here")


Words = Callable[[Call], Term]


def terms_of(network: ReadNetwork, layers: Iterable[int], sources: Mapping[int, Term]) -> dict[int, Term]:
    """Returns the terms of what layers compute, by the numbers of tensors.

    Args:
        network: The network.
        layers: Their positions; each stands after those whose results it reads.
        sources: What they start from, likewise.

    Raises:
        Wordless: One of them has none.
    """
    made = dict(sources)
    for index in layers:
        layer = network.layers[index]
        if len(layer.outputs) != 1 or not all(number is None or number in made for number in layer.inputs):
            raise Wordless(layer.kind)
        result = network.tensors[layer.outputs[0]]
        written = _folded(network, layer, made) or _written(layer, result.dtype, made)
        if written.dtype != result.dtype or result.shape is None or len(result.shape) != written.rank:
            raise Wordless("a result of another type")
        made[result.index] = written
    return made


def _written(layer: ReadLayer, dtype: str, made: Mapping[int, Term]) -> Term:
    words = _WORDS.get(layer.kind)
    if words is None:
        raise Wordless(layer.kind)
    call = Call(layer, [None if number is None else made[number] for number in layer.inputs], dtype)
    written = words(call)
    call.finish()
    return written


def _folded(network: ReadNetwork, layer: ReadLayer, made: Mapping[int, Term]) -> Term | None:
    """Returns what a layer makes of few constants; None where it reads anything else."""
    arrays = {number: made[number].array for number in layer.inputs if number is not None}
    if not arrays or layer.kind not in _FOLDED or not all(map(is_small, arrays.values())):
        return None
    try:
        (values,) = results_of(network, layer, KINDS[layer.kind], arrays.__getitem__)
    except NotProven as error:
        raise Wordless(error.reason) from error
    return terms.constant(values)


_FOLDED = frozenset(
    (  # noqa: SIM905
        "CAST CONCATENATION CUMULATIVE ELEMENTWISE FILL GATHER IDENTITY SELECT SHUFFLE SLICE SQUEEZE UNARY UNSQUEEZE"
    ).split()
)
"""Kinds of layer that are computed where all that they read is few constants: sizes, axes, scales."""


def _constant(call: Call) -> Term:
    values, dtype = call.weights("weights"), numpy_type(call.dtype)
    if values.dtype != dtype and values.dtype.itemsize == dtype.itemsize:
        values = values.view(dtype)
    shape = call.take("shape")
    if values.dtype != dtype or shape is None or values.size != int(np.prod(shape, dtype=np.int64)):
        raise Wordless("values of another type")
    return terms.constant(values.reshape(shape))


def _cast(call: Call) -> Term:
    if call.has("to_type") and numpy_name(call.take("to_type")) != call.dtype:
        raise Wordless("a type that is told later")
    return terms.cast(call.operand(), call.dtype)


def _shape(call: Call) -> Term:
    source = call.operand()
    if not source.is_static:
        raise Wordless("sizes that are not known")
    return terms.constant(np.array(source.sizes, numpy_type(call.dtype)))


def _gather(call: Call) -> Term:
    if call.take("mode") != "DEFAULT" or call.take("num_elementwise_dims"):
        raise Wordless("rows of its own")
    return terms.gathered(call.operand(0), call.operand(1), call.take("axis"))


def _select(call: Call) -> Term:
    operands = call.operand(0), call.operand(1), call.operand(2)
    if len({operand.rank for operand in operands}) != 1:
        raise Wordless("operands of several ranks")
    return terms.chosen(*operands)


def _resize(call: Call) -> Term:
    source, given, written, scales = call.operand(), call.ints(1), call.take("shape"), call.take("scales")
    sizes = given or written or terms.scaled_sizes(source, scales or ())
    if call.take("exclude_outside"):
        raise Wordless("weights of its own")
    mode, places = call.take("resize_mode"), call.take("coordinate_transformation")
    nearest, cubic = call.take("nearest_rounding"), call.take("cubic_coeff")
    single = call.take("selector_for_single_pixel")
    return terms.resized(source, sizes, mode, places, nearest=nearest, cubic=cubic, single=single)


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
}
"""Kinds of activation to the numbers that count in them."""


def _activation(call: Call) -> Term:
    kind = call.take("type")
    if kind not in _ACTIVATIONS:
        raise Wordless(kind)
    details = [call.number(name) for name in _ACTIVATIONS[kind]]
    call.drop("alpha", "beta")
    return terms.applied(kind, call.operand(), *details)


def _unary(call: Call) -> Term:
    return terms.applied(call.take("op"), call.operand())


def _elementwise(call: Call) -> Term:
    one, other = call.operand(0), call.operand(1)
    if one.rank != other.rank:
        raise Wordless("operands of several ranks")
    return terms.joined(call.take("op"), one, other)


def _prelu(call: Call) -> Term:
    source, slope = call.operand(0), call.operand(1)
    if slope.rank != source.rank:
        raise Wordless("slopes of another rank")
    return terms.joined("PRELU", source, slope)


def _shuffle(call: Call) -> Term:
    result = terms.transposed(call.operand(), call.take("first_transpose"))
    given, written, zero_copies = call.ints(1), call.take("reshape_dims"), bool(call.take("zero_is_placeholder"))
    target = written if given is None else given
    if target is not None:
        result = terms.reshaped(result, target, zero_copies)
    return terms.transposed(result, call.take("second_transpose"))


def _squeeze(call: Call) -> Term:
    axes = call.ints(1)
    if not axes:
        raise Wordless("axes of its own")
    return terms.squeezed(call.operand(), axes)


def _unsqueeze(call: Call) -> Term:
    axes = call.ints(1)
    if not axes:
        raise Wordless("axes of its own")
    return terms.unsqueezed(call.operand(), axes)


def _matmul(call: Call) -> Term:
    return terms.multiplied(*(_turned(call.operand(at), call.take(f"op{at}")) for at in (0, 1)))


def _turned(matrix: Term, how: str) -> Term:
    if how not in ("NONE", "TRANSPOSE") or matrix.rank < 2:
        raise Wordless(how)
    order = [*range(matrix.rank - 2), matrix.rank - 1, matrix.rank - 2]
    return terms.transposed(matrix, order) if how == "TRANSPOSE" else matrix


def _convolution(call: Call) -> Term:
    source, given, bias_given = call.operand(0), call.optional(1), call.optional(2)
    transpose = call.kind == "DECONVOLUTION"
    weights, bias = call.weights("kernel"), call.weights("bias")
    shape, groups, maps = tuple(call.take("kernel_size_nd")), call.take("num_groups"), call.take("num_output_maps")
    kernel = given or terms.constant(_kernel(weights, shape, groups, maps, transpose))
    if kernel.rank != source.rank or kernel.sizes[2:] != shape:
        raise Wordless("a kernel of another shape")
    if (kernel.sizes[1] * groups if transpose else kernel.sizes[0]) != maps:
        raise Wordless("other maps")
    own = terms.constant(bias) if bias.size else None
    window = _window(call, tuple(call.take("dilation_nd")))
    return convolved(source, kernel, window, bias_given or own, groups, transpose)


def _kernel(weights: Array, shape: tuple[int, ...], groups: int, maps: int, transpose: bool) -> Array:
    held = int(np.prod(shape, dtype=np.int64)) * (maps // groups if transpose else maps)
    if not weights.size or not held or weights.size % held or maps % groups:
        raise Wordless("a kernel of another shape")
    rest = weights.size // held
    return weights.reshape(*((rest, maps // groups) if transpose else (maps, rest)), *shape)


def _window(call: Call, dilations: tuple[int, ...]) -> Window:
    if call.take("padding_mode") != "EXPLICIT_ROUND_DOWN":
        raise Wordless("pads that are computed")
    strides, low, high = (tuple(call.take(name)) for name in ("stride_nd", "pre_padding", "post_padding"))
    return Window(strides, low, high, dilations)


def _pooling(call: Call) -> Term:
    shape, counts = tuple(call.take("window_size_nd")), not call.take("average_count_excludes_padding")
    call.drop("blend_factor")
    window = _window(call, (1,) * len(shape))
    return pooled(call.take("type"), call.operand(), shape, window, counts)


def _reduce(call: Call) -> Term:
    return terms.reduced(call.take("op"), call.operand(), axes_of(call.take("axes")), bool(call.take("keep_dims")))


def _softmax(call: Call) -> Term:
    axes = axes_of(call.take("axes"))
    if len(axes) != 1:
        raise Wordless("several axes")
    return terms.softened(call.operand(), axes[0])


def _concatenation(call: Call) -> Term:
    operands: list[Term] = []
    while (given := call.optional(len(operands))) is not None:
        operands.append(given)
    return terms.concatenated(operands, call.take("axis"))


def _slice(call: Call) -> Term:
    rows = []
    for at, name in enumerate(("start", "shape", "stride"), 1):
        given, written = call.ints(at), call.take(name)
        rows.append(written if given is None else given)
    if call.take("mode") not in ("STRICT_BOUNDS", "DEFAULT") or any(row is None for row in rows):
        raise Wordless("a part of its own")
    source, axes = call.operand(), call.ints(5) or (call.take("axes") if call.has("axes") else None)
    return terms.cut(source, *_on_all_axes(source, axes, rows)) if axes else terms.cut(source, *rows)


def _on_all_axes(source: Term, axes: Sequence[int], rows: Sequence[Sequence[int]]) -> list[list[int]]:
    whole = [[0] * source.rank, list(source.sizes), [1] * source.rank]
    for values, row in zip(whole, rows, strict=True):
        for axis, value in zip(axes, row, strict=True):
            values[source.axis(axis)] = value
    return whole


def _normalization(call: Call) -> Term:
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
    "DECONVOLUTION": _convolution,
    "ELEMENTWISE": _elementwise,
    "GATHER": _gather,
    "IDENTITY": _cast,
    "MATRIX_MULTIPLY": _matmul,
    "NORMALIZATION": _normalization,
    "PARAMETRIC_RELU": _prelu,
    "POOLING": _pooling,
    "REDUCE": _reduce,
    "RESIZE": _resize,
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
