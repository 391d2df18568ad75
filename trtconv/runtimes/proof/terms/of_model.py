"""The terms of ONNX nodes, by ONNX's definition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from trtconv.graph.model import OnnxModel
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.term import Term, Wordless
from trtconv.runtimes.proof.terms.windows import Window, convolved, pooled


class Call:
    """One node with what it reads.

    Args:
        node: The node.
        inputs: Terms of its inputs; None where an optional one is absent.
        opset: Version of ONNX's operators.
    """

    def __init__(self, node: onnx.NodeProto, inputs: Sequence[Term | None], opset: int) -> None:
        self.opset = opset
        self.results = [name for name in node.output if name]
        self._inputs = list(inputs)
        self._attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}

    def take(self, name: str, default: Any) -> Any:
        """Returns an attribute, once; what nobody takes has no words."""
        return self._attributes.pop(name, default)

    def number(self, name: str, default: float) -> float:
        """Returns an attribute as the number that 32 bits hold."""
        return float(np.float32(self.take(name, default)))

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
        """Returns the values of an input that holds sizes or axes; None where it is absent.

        Raises:
            Wordless: They are not known.
        """
        given = self.optional(index)
        if given is None:
            return None
        if given.array is None or given.array.dtype.kind not in "iu":
            raise Wordless("sizes that are computed")
        return [int(value) for value in given.array.reshape(-1)]

    def scalar(self, index: int, default: float) -> float:
        """Returns the one number that an input is."""
        given = self.optional(index)
        if given is None:
            return default
        if given.array is None or given.array.size != 1:
            raise Wordless("a number that is computed")
        return float(given.array.reshape(()))

    def finish(self) -> None:
        """Raises `Wordless` where something was not asked for."""
        if self._attributes or any(given is not None for given in self._inputs):
            raise Wordless("more than is written down here")


Words = Callable[[Call], "Term | Sequence[Term]"]


def terms_of(model: OnnxModel, nodes: Iterable[int], sources: Mapping[str, Term]) -> dict[str, Term]:
    """Returns the terms of what nodes of the main graph compute.

    Args:
        model: The model.
        nodes: Their positions, in an order in which each comes after what it reads.
        sources: What they start from.

    Raises:
        Wordless: One of them has none.
    """
    scope, opset = model.main, model.opset
    made = dict(sources)

    def read(name: str) -> Term | None:
        if not name or name in made:
            return made.get(name)
        values = scope.constant(name)
        if values is None or values.data_type == onnx.TensorProto.STRING:
            raise Wordless(f"{name} is not known")
        return terms.constant(model.array(values))

    for index in nodes:
        node = scope.columns.nodes[index]
        words = _WORDS.get(node.op_type)
        if words is None or node.domain not in ONNX_DOMAINS:
            raise Wordless(node.op_type)
        call = Call(node, [read(name) for name in node.input], opset)
        written = words(call)
        call.finish()
        results = [written] if isinstance(written, Term) else written
        made.update(zip((name for name in node.output if name), results, strict=True))
    return made


def _constant(call: Call) -> Term:
    held = call.take("value", None)
    if held is None or held.data_type == onnx.TensorProto.STRING or held.external_data:
        raise Wordless("a constant in another form")
    return terms.constant(onnx.numpy_helper.to_array(held))


def _identity(call: Call) -> Term:
    return call.operand()


def _joined(op: str, call: Call) -> Term:
    return terms.joined(op, call.operand(0), call.operand(1))


def _applied(op: str, call: Call) -> Term:
    return terms.applied(op, call.operand())


def _leaky_relu(call: Call) -> Term:
    return terms.applied("LEAKY_RELU", call.operand(), call.number("alpha", 0.01))


def _elu(call: Call) -> Term:
    return terms.applied("ELU", call.operand(), call.number("alpha", 1.0))


def _hard_sigmoid(call: Call) -> Term:
    return terms.applied("HARD_SIGMOID", call.operand(), call.number("alpha", 0.2), call.number("beta", 0.5))


def _hard_swish(call: Call) -> Term:
    source = call.operand()
    gate = terms.applied("HARD_SIGMOID", source, float(np.float32(1 / 6)), 0.5)
    return terms.joined("PROD", source, gate)


def _thresholded_relu(call: Call) -> Term:
    return terms.applied("THRESHOLDED_RELU", call.operand(), call.number("alpha", 1.0))


def _gelu(call: Call) -> Term:
    how = call.take("approximate", b"none")
    if how not in (b"none", b"tanh"):
        raise Wordless(f"approximation {how!r}")
    return terms.applied("GELU_ERF" if how == b"none" else "GELU_TANH", call.operand())


def _clip(call: Call) -> Term:
    limits = call.scalar(1, np.nan), call.scalar(2, np.nan)
    if call.opset < 11:
        limits = call.number("min", np.nan), call.number("max", np.nan)
    if not np.isfinite(limits).all() or limits[0] > limits[1]:
        raise Wordless("limits of its own")
    return terms.applied("CLIP", call.operand(), *limits)


def _prelu(call: Call) -> Term:
    source, slope = call.operand(0), call.operand(1)
    if slope.rank > source.rank:
        raise Wordless("slopes of more axes")
    return terms.joined("PRELU", source, slope)


def _transpose(call: Call) -> Term:
    source = call.operand()
    return terms.transposed(source, call.take("perm", range(source.rank)[::-1]))


def _reshape(call: Call) -> Term:
    target = call.ints(1)
    if target is None:
        raise Wordless("a shape of its own")
    return terms.reshaped(call.operand(), target, not call.take("allowzero", 0))


def _flatten(call: Call) -> Term:
    source, axis = call.operand(), call.take("axis", 1)
    if not source.is_static or not -source.rank <= axis <= source.rank:
        raise Wordless("sizes that are computed")
    axis = axis + source.rank if axis < 0 else axis
    return terms.reshaped(source, (int(np.prod(source.sizes[:axis], dtype=np.int64)), -1))


def _axes(call: Call, as_input_from: int, at: int = 1) -> list[int]:
    """Returns axes that became an input with an opset."""
    axes = call.ints(at) if call.opset >= as_input_from else call.take("axes", None)
    if not axes:
        raise Wordless("axes of its own")
    return list(axes)


def _squeeze(call: Call) -> Term:
    return terms.squeezed(call.operand(), _axes(call, 13))


def _unsqueeze(call: Call) -> Term:
    return terms.unsqueezed(call.operand(), _axes(call, 13))


def _matmul(call: Call) -> Term:
    return terms.multiplied(call.operand(0), call.operand(1))


def _gemm(call: Call) -> Term:
    if call.take("alpha", 1.0) != 1 or call.take("beta", 1.0) != 1:
        raise Wordless("factors")
    a, b = (_turned(call.operand(at), call.take(name, 0)) for at, name in enumerate(("transA", "transB")))
    product, bias = terms.multiplied(a, b), call.optional(2)
    return product if bias is None else terms.joined("SUM", product, bias)


def _turned(matrix: Term, turn: int) -> Term:
    if matrix.rank != 2:
        raise Wordless("no matrix")
    return terms.transposed(matrix, (1, 0)) if turn else matrix


def _window(call: Call, axes: int) -> Window:
    if call.take("auto_pad", b"NOTSET") != b"NOTSET":
        raise Wordless("pads that are computed")
    pads = tuple(call.take("pads", (0,) * 2 * axes))
    if len(pads) != 2 * axes:
        raise Wordless("pads of another rank")
    strides, dilations = (tuple(call.take(name, (1,) * axes)) for name in ("strides", "dilations"))
    return Window(strides, pads[:axes], pads[axes:], dilations)


def _convolution(transpose: bool, call: Call) -> Term:
    source, kernel, bias = call.operand(0), call.operand(1), call.optional(2)
    axes = source.rank - 2
    if tuple(call.take("kernel_shape", kernel.sizes[2:])) != kernel.sizes[2:]:
        raise Wordless("a kernel of another shape")
    if transpose and (any(call.take("output_padding", ())) or call.take("output_shape", None) is not None):
        raise Wordless("sizes of its own")
    return convolved(source, kernel, bias, _window(call, axes), call.take("group", 1), transpose)


def _pool(kind: str, call: Call) -> Term:
    source = call.operand()
    shape = tuple(call.take("kernel_shape", ()))
    counts = bool(call.take("count_include_pad", 0))
    if call.take("ceil_mode", 0) or call.take("storage_order", 0) or len(call.results) != 1:
        raise Wordless("a pool of its own")
    return pooled(kind, source, shape, _window(call, len(shape)), counts)


def _global_pool(op: str, call: Call) -> Term:
    source = call.operand()
    return terms.reduced(op, source, range(2, source.rank), keep=True)


def _reduction(op: str, call: Call) -> Term:
    axes = _axes(call, 13 if op == "SUM" else 18)
    # It says something of no axes alone.
    call.take("noop_with_empty_axes", 0)
    return terms.reduced(op, call.operand(), axes, keep=bool(call.take("keepdims", 1)))


def _softmax(call: Call) -> Term:
    source = call.operand()
    axis = source.axis(call.take("axis", -1 if call.opset >= 13 else 1))
    if call.opset < 13 and axis != source.rank - 1:
        raise Wordless("axes that are made one")
    return terms.softened(source, axis)


def _concat(call: Call) -> Term:
    operands: list[Term] = []
    while (given := call.optional(len(operands))) is not None:
        operands.append(given)
    return terms.concatenated(operands, call.take("axis", 0))


def _split(call: Call) -> list[Term]:
    source = call.operand()
    axis, lengths = source.axis(call.take("axis", 0)), call.ints(1) if call.opset >= 13 else call.take("split", None)
    count = call.take("num_outputs", len(call.results))
    if not lengths:
        size = source.sizes[axis]
        if size < 1 or size % count:
            raise Wordless("uneven parts")
        lengths = [size // count] * count
    if len(lengths) != len(call.results) or sum(lengths) != source.sizes[axis]:
        raise Wordless("other parts")
    starts = [sum(lengths[:at]) for at in range(len(lengths))]
    return [_part(source, {axis: (start, length, 1)}) for start, length in zip(starts, lengths, strict=True)]


def _part(source: Term, taken: Mapping[int, tuple[int, int, int]]) -> Term:
    rows = [taken.get(axis, (0, size, 1)) for axis, size in enumerate(source.sizes)]
    starts, sizes, steps = zip(*rows, strict=True)
    return terms.cut(source, starts, sizes, steps)


def _slice(call: Call) -> Term:
    if call.opset < 10:
        raise Wordless("an older form")
    source = call.operand()
    starts, ends, axes, steps = (call.ints(at) for at in (1, 2, 3, 4))
    if starts is None or ends is None:
        raise Wordless("sizes that are computed")
    axes = list(range(len(starts))) if axes is None else [source.axis(axis) for axis in axes]
    steps = [1] * len(starts) if steps is None else steps
    taken = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = source.sizes[axis]
        if size < 0 or step == 0:
            raise Wordless("a part that depends on sizes")
        # Backwards, an end before the first place is one that Python would count from the other side.
        last = None if step < 0 and end < -size else end
        places = range(size)[start:last:step]
        taken[axis] = (places.start, len(places), step)
    return _part(source, taken)


def _pad(call: Call) -> Term:
    mode, pads = call.take("mode", b"constant"), call.ints(1) if call.opset >= 11 else call.take("pads", None)
    if pads is None or any(pads) or mode not in (b"constant", b"edge", b"reflect"):
        raise Wordless("pads")
    # What is filled in nowhere may be anything.
    call.optional(2), call.optional(3), call.take("value", 0.0)
    return call.operand()


def _layer_normalization(call: Call) -> Term:
    source, scale, bias = call.operand(0), call.operand(1), call.optional(2)
    axis = source.axis(call.take("axis", -1))
    if call.take("stash_type", 1) != 1 or len(call.results) != 1:
        raise Wordless("a normalisation of its own")
    axes, epsilon = range(axis, source.rank), call.take("epsilon", 1e-5)
    return terms.normalized(source, _aligned(scale, source), bias and _aligned(bias, source), axes, epsilon)


def _aligned(scale: Term, source: Term) -> Term:
    if scale.rank > source.rank:
        raise Wordless("scales of more axes")
    return terms.unsqueezed(scale, range(source.rank - scale.rank))


def _instance_normalization(call: Call) -> Term:
    source = call.operand(0)
    if source.rank < 3:
        raise Wordless("no image")
    shape = (1, -1, *(1,) * (source.rank - 2))
    scale, bias = (terms.reshaped(call.operand(at), shape) for at in (1, 2))
    return terms.normalized(source, scale, bias, range(2, source.rank), call.take("epsilon", 1e-5))


_ACTIVATIONS = {"Relu": "RELU", "Sigmoid": "SIGMOID", "Tanh": "TANH", "Softsign": "SOFTSIGN"}
_UNARY = (
    "Exp Log Sqrt Abs Neg Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Ceil Floor Erf Sign Round Reciprocal"
)
_JOINED = {
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
_REDUCED = {"ReduceMean": "AVG", "ReduceSum": "SUM", "ReduceMax": "MAX", "ReduceMin": "MIN", "ReduceProd": "PROD"}

_WORDS: dict[str, Words] = {
    **{op: functools.partial(_applied, name) for op, name in _ACTIVATIONS.items()},
    **{op: functools.partial(_applied, {"Reciprocal": "RECIP"}.get(op, op.upper())) for op in _UNARY.split()},
    **{op: functools.partial(_joined, name) for op, name in _JOINED.items()},
    **{op: functools.partial(_reduction, name) for op, name in _REDUCED.items()},
    "AveragePool": functools.partial(_pool, "AVERAGE"),
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constant,
    "Conv": functools.partial(_convolution, False),
    "ConvTranspose": functools.partial(_convolution, True),
    "Elu": _elu,
    "Flatten": _flatten,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": functools.partial(_global_pool, "AVG"),
    "GlobalMaxPool": functools.partial(_global_pool, "MAX"),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Identity": _identity,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LeakyRelu": _leaky_relu,
    "MatMul": _matmul,
    "MaxPool": functools.partial(_pool, "MAX"),
    "PRelu": _prelu,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "ThresholdedRelu": _thresholded_relu,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""Operators to the words for them."""
