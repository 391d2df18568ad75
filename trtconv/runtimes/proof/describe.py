"""What is known of a piece before it is run: types, roles of its integers, limits, windows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import all_nodes, reads
from trtconv.runtimes.proof.cut import Piece
from trtconv.runtimes.proof.feeds import InputKind, Role, Source
from trtconv.runtimes.proof.numbers import numbers, numbers_of
from trtconv.runtimes.proof.roles import role_of
from trtconv.runtimes.proof.tolerance import eps_of
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork
from trtconv.runtimes.tensorrt.readback.types import numpy_type

_MOST_LIMITS = 24
_APPROXIMATED = frozenset(
    (  # noqa: SIM905
        "BlackmanWindow HannWindow HammingWindow DFT STFT "
        "Exp Log Erf Gelu Tanh Sigmoid Softmax LogSoftmax Softplus Mish Elu Selu Celu HardSwish Swish Sin Cos Tan "
        "Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Pow LSTM GRU RNN Attention MultiHeadAttention "
        "InstanceNormalization LayerNormalization GroupNormalization RMSNormalization ReduceLogSum ReduceLogSumExp "
        "RotaryEmbedding MeanVarianceNormalization"
    ).split()
)
_EXPONENTIAL = frozenset(
    (  # noqa: SIM905
        "Exp Log Softmax LogSoftmax ReduceLogSum ReduceLogSumExp Softplus Mish Elu Selu Celu Swish Sigmoid Attention "
        "MultiHeadAttention"
    ).split()
)
"""Operators that are read otherwise, if at all, where their exponentials overflow or vanish."""
_QUANTIZED = (-128.5, -127.5, -128.0, 127.5, 126.5, 127.0, 255.0, 0.5, 1.5, 2.5, -0.5)
_LINEAR = frozenset(
    "Conv ConvTranspose Gemm MatMul Add Sub Mul Sum Mean ReduceMean ReduceSum GlobalAveragePool".split()  # noqa: SIM905
)
_LINEAR_KINDS = (InputKind.ORDINARY, InputKind.ZEROS, InputKind.LARGE)
"""What tells a sum of products from another: its factors, and what it adds."""
_MOVING = frozenset(
    (  # noqa: SIM905
        "Reshape Transpose Concat Slice Squeeze Unsqueeze Flatten Expand Tile DepthToSpace SpaceToDepth Split Identity"
    ).split()
)
_OF_SIZES = frozenset({"Shape", "Size"})
"""Operators that look at sizes and not at values."""
_MOVING_LAYERS = frozenset("SHUFFLE CONCATENATION SLICE IDENTITY CONSTANT".split())  # noqa: SIM905
_ARITHMETIC_LAYERS = frozenset({"ELEMENTWISE", "REDUCE", "POOLING"})
_LINEAR_LAYERS = frozenset(
    {
        *("CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY", "FULLY_CONNECTED", "PADDING"),
        *("ELEMENTWISE SUM", "ELEMENTWISE SUB", "ELEMENTWISE PROD", "REDUCE SUM", "REDUCE AVG", "POOLING AVERAGE"),
    }
)
"""Layers that add products: what else stands among them may have a threshold anywhere."""
_MOVING_KINDS = (InputKind.ORDINARY, InputKind.LIMITS)
"""What tells places apart is all that tells where a value is moved to."""
_OF_ANY_SIZE = frozenset(
    (  # noqa: SIM905
        "ACTIVATION CAST CONCATENATION CONVOLUTION DECONVOLUTION DEQUANTIZE ELEMENTWISE IDENTITY NORMALIZATION "
        "PARAMETRIC_RELU QUANTIZE SCALE SELECT SOFTMAX UNARY"
    ).split()
)
"""Kinds of layer that hold no sizes of what they compute."""
_ELEMENT_BY_ELEMENT = frozenset(
    (  # noqa: SIM905
        "ACTIVATION CAST CONSTANT DEQUANTIZE ELEMENTWISE IDENTITY PARAMETRIC_RELU QUANTIZE SCALE SELECT UNARY"
    ).split()
)
_ROUGH = {"Selu": 1e-4}
"""Operators whose defaults TensorRT's parser has to four digits only (1.6732 and 1.0507 for Selu)."""
_PLACED = frozenset("Resize Upsample GridSample RoiAlign AffineGrid".split())  # noqa: SIM905
"""Operators that compute where they read: a place is rounded as the number that it is, between 0 and the size."""
_SPECTRA = frozenset({"DFT", "STFT"})
"""Operators that add up an axis with factors of all angles, which are rounded as numbers up to 2 pi times the size."""
_BY_CHANNEL = frozenset("Conv ConvTranspose BatchNormalization InstanceNormalization".split())  # noqa: SIM905
"""Operators whose constants say nothing of the sizes of images."""
_OF_CONSTANTS = (1.0, -1.0, *_QUANTIZED)


@frozen
class Description:
    """What is known of a piece.

    Args:
        sources: What it starts from.
        limits: Values around which it may behave otherwise.
        eps: The unit of rounding of its types.
        approximated: Whether it holds functions that libraries approximate.
        narrow: Whether its type is one that NumPy alone has not.
        largest: The scale of inputs that are large for it: those of an exponential must not all be beyond its range.
        rough: By how much of a value TensorRT's parser rounds constants of its own.
        kinds: The inputs that tell something of it.
        bound: Sizes that its constants have, or state.
        any_size: Whether nothing in its layers depends on the sizes that it was parsed for.
        extent: Its largest window.
        placed: How many units of rounding of its largest input a result is off for each place of an axis, since
            places, or angles, are computed.
        moves: Whether the place of an element matters to what is done with it.
        free_batch: Whether the first axis of all sources may have any size.
        ranks: Of the sources, as the network has them.
    """

    sources: tuple[Source, ...]
    limits: tuple[float, ...]
    eps: float
    approximated: bool
    narrow: bool
    largest: float
    rough: float
    kinds: tuple[InputKind, ...]
    bound: frozenset[int]
    any_size: bool
    extent: int
    placed: float
    moves: bool
    free_batch: bool
    shapes: Mapping[str, tuple[int, ...]]

    def shape(self, name: str) -> tuple[int | None, ...]:
        """Returns the shape that the network knows of a source; None where a size is not known."""
        return tuple(None if n < 0 else n for n in self.shapes.get(name, ()))

    def kinds_at(self, shapes: Mapping[str, tuple[int, ...]], few: int) -> tuple[InputKind, ...]:
        """Returns the inputs to be tried at sizes; the first alone where they have more than a few elements."""
        return self.kinds[:1] if sum(map(math.prod, shapes.values())) > few else self.kinds

    @classmethod
    def of(
        cls, network: ReadNetwork, model: OnnxModel, piece: Piece, shapes: Mapping[str, tuple[int | None, ...]]
    ) -> Description:
        """Describes a piece.

        Args:
            network: The network.
            model: Its model.
            piece: The piece.
            shapes: Of the tensors of the model at one size of its inputs.
        """
        nodes = list(all_nodes(model.main.columns.nodes[index] for index in piece.nodes))
        layers = [network.layers[index] for index in piece.layers]
        tensors = {name: network.named[name] for name in piece.sources if name in network.named}
        network_shapes = {name: tensor.shape for name, tensor in tensors.items() if tensor.shape is not None}
        numbers = {n for layer in layers for n in (*layer.inputs, *layer.outputs) if n is not None}
        sources = tuple(
            _source(model, nodes, name, tensors[name].dtype if name in tensors else "float32", shapes)
            for name in piece.sources
        )
        # TensorRT before 9 calls every float of a network float32; the model rounds to its own types all the same.
        own = (model.main.dtype(name) or "" for node in nodes for name in (*node.input, *node.output))
        eps = eps_of({*(network.tensors[n].dtype for n in numbers), *own})
        approximated = any(node.op_type in _APPROXIMATED for node in nodes)
        return cls(
            sources,
            _limits(layers, model, nodes),
            eps,
            approximated,
            _is_narrow(model.main.dtype(piece.target)),
            8.0 if approximated else 30.0 if eps > eps_of(()) else 300.0,
            max((_ROUGH.get(node.op_type, 0.0) for node in nodes), default=0.0),
            _kinds(nodes, layers, sources),
            _sizes_of_constants(model, nodes) | _sizes_of_reshapes(model, nodes, shapes),
            all(layer.kind in _OF_ANY_SIZE for layer in layers),
            _extent(layers, nodes),
            max((_placed(node.op_type) for node in nodes), default=0.0),
            any(layer.kind not in _ELEMENT_BY_ELEMENT for layer in layers),
            bool(sources) and all(_is_free(network_shapes.get(name), shapes.get(name)) for name in piece.sources),
            network_shapes,
        )


def _kinds(nodes: list[onnx.NodeProto], layers: list[ReadLayer], sources: tuple[Source, ...]) -> tuple[InputKind, ...]:
    # Of integers and booleans each kind has others.
    if all(source.role is Role.NUMBER and numpy_type(source.dtype).kind in "fV" for source in sources):
        ops, works = _working_ops(nodes, sources), _working_layers(layers)
        if ops <= _MOVING and works <= _MOVING_LAYERS:
            return _MOVING_KINDS
        if ops <= _LINEAR | _MOVING and works <= _LINEAR_LAYERS | _MOVING_LAYERS:
            return _LINEAR_KINDS
    # TensorRT computes doubles as float32, and has no exponentials beyond those of its own.
    wide = any(node.op_type in _EXPONENTIAL for node in nodes) and all(source.dtype != "float64" for source in sources)
    thresholded = any(node.op_type == "NonMaxSuppression" for node in nodes)
    special = {InputKind.WIDE: wide, InputKind.DEEP: thresholded}
    return tuple(kind for kind in InputKind if special.get(kind, True))


def _working_ops(nodes: list[onnx.NodeProto], sources: Iterable[Source]) -> set[str]:
    """Returns the operators that what a piece starts from goes through; those that its sizes alone go through are left
    out."""
    rows = [
        (reads(node), node.output, node.op_type if node.domain in ONNX_DOMAINS else f"{node.domain}::{node.op_type}")
        for node in nodes
    ]
    return _downstream(rows, {source.name for source in sources}, _OF_SIZES)


def _working_layers(layers: list[ReadLayer]) -> set[str]:
    """Returns the kinds of layer likewise, with what an arithmetic one computes."""
    rows = [({n for n in layer.inputs if n is not None}, layer.outputs, _work_of(layer)) for layer in layers]
    results = {number for layer in layers for number in layer.outputs}
    return _downstream(rows, set().union(*(read for read, _, _ in rows)) - results, frozenset({"SHAPE"}))


def _work_of(layer: ReadLayer) -> str:
    what = layer.values.get("op", layer.values.get("type")) if layer.kind in _ARITHMETIC_LAYERS else None
    return layer.kind if what is None else f"{layer.kind} {what}"


def _downstream(
    rows: Sequence[tuple[set[Any], Iterable[Any], str]], start: set[Any], blind: Collection[str]
) -> set[str]:
    """Returns what is done to some tensors and to what comes of them; rows may come in any order.

    Args:
        rows: What is read, what is made of it, and how.
        start: The tensors.
        blind: What looks at sizes and not at values.
    """
    reached, kinds, left = set(start), set[str](), [row for row in rows if row[2] not in blind]
    while left:
        apart = []
        for row in left:
            read, results, what = row
            if reached.isdisjoint(read):
                apart.append(row)
            else:
                reached.update(results)
                kinds.add(what)
        if len(apart) == len(left):
            break
        left = apart
    return kinds


def _placed(op: str) -> float:
    return 2 * math.pi if op in _SPECTRA else 1.0 if op in _PLACED else 0.0


def _sizes_of_constants(model: OnnxModel, nodes: list[onnx.NodeProto]) -> frozenset[int]:
    read = (node for node in nodes if node.op_type not in _BY_CHANNEL)
    tensors = (model.main.constant(name) for node in read for name in node.input if name)
    return frozenset(size for tensor in tensors if tensor is not None for size in tensor.dims if size > 1)


def _sizes_of_reshapes(
    model: OnnxModel, nodes: list[onnx.NodeProto], shapes: Mapping[str, tuple[int | None, ...]]
) -> frozenset[int]:
    """Returns the sizes that Reshapes to constant shapes bind: all but those that they hand on, whatever they are."""
    sizes: set[int | None] = set()
    for node in nodes:
        target = model.main.constant(node.input[1]) if node.op_type == "Reshape" and len(node.input) > 1 else None
        source, result = shapes.get(node.input[0]) if node.input else None, shapes.get(node.output[0])
        if target is None or not source or not result or None in (*source, *result):
            continue
        stated = model.array(target).reshape(-1).tolist()
        for olds, news in _factors(source, result):  # type: ignore[arg-type]
            if not (len(olds) == len(news) == 1 and {stated[axis] for axis in news} <= {0, -1}):
                sizes |= {source[axis] for axis in olds} | {result[axis] for axis in news}
    return frozenset(size for size in sizes if size is not None and size > 1)


def _factors(old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Yields the smallest runs of axes of two shapes, from the left, that have as many elements as each other; axes of
    size 1 are in none."""
    left = [axis for axis, size in enumerate(old) if size != 1]
    olds, news, more, most = [], [], 1, 1
    for axis in (axis for axis, size in enumerate(new) if size != 1):
        news.append(axis)
        most *= new[axis]
        while left and more < most:
            more *= old[left[0]]
            olds.append(left.pop(0))
        if more == most:
            yield olds, news
            olds, news, more, most = [], [], 1, 1
    yield [*olds, *left], news


def _is_narrow(dtype: str | None) -> bool:
    if dtype is None:
        return False
    try:
        return np.dtype(dtype).kind not in "fiub"
    except TypeError:
        return True


def _is_free(network_shape: tuple[int, ...] | None, shape: tuple[int | None, ...] | None) -> bool:
    if not shape:
        return shape is not None
    return bool(network_shape) and network_shape[0] < 0 and shape[0] == 1  # type: ignore[index]


def _source(
    model: OnnxModel, nodes: list[onnx.NodeProto], name: str, dtype: str, shapes: Mapping[str, tuple[int | None, ...]]
) -> Source:
    own = model.main.dtype(name) or dtype
    role, bound = role_of(model, name, shapes, nodes)
    return Source(name, own, role, bound)


def _limits(layers: list[ReadLayer], model: OnnxModel, nodes: list[onnx.NodeProto]) -> tuple[float, ...]:
    """Returns the numbers that occur in a piece, on either side, and their multiples at the ends of integer types."""
    values = [number for layer in layers for value in layer.values.values() for number in numbers(value)]
    values += numbers_of(model, nodes)
    usable = dict.fromkeys(value for value in values if value and math.isfinite(value) and abs(value) < 1e30)
    first = [number for number in usable if abs(number) > 1e-30]
    return tuple(dict.fromkeys(number * factor for number in first[:_MOST_LIMITS] for factor in _OF_CONSTANTS))


def _extent(layers: list[ReadLayer], nodes: list[onnx.NodeProto]) -> int:
    """Returns how far the largest window reaches."""
    largest = 1
    for layer in layers:
        window = layer.values.get("kernel_size_nd") or layer.values.get("window_size_nd") or ()
        steps = layer.values.get("dilation_nd") or (1,) * len(window)
        largest = max([largest, *(n * step for n, step in zip(window, steps, strict=False))])
    for node in nodes:
        attributes = {attribute.name: list(attribute.ints) for attribute in node.attribute if attribute.ints}
        window = tuple(attributes.get("kernel_shape", ()))
        largest = max(
            [largest, *(n * s for n, s in zip(window, attributes.get("dilations", [1] * len(window)), strict=False))]
        )
    return largest
