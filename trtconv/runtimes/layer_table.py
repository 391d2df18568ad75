"""The layers of a parsed network as a report keeps them, with their work at the sizes that profiles are tuned for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from trtconv.core.dims import Shape
from trtconv.core.documents.layers import LayerTable, TableLayer, TableTensor
from trtconv.core.frozen import frozen
from trtconv.core.named_sizes import UNKNOWN, KnownSizes, named_size
from trtconv.runtimes.layer_shapes import with_inner
from trtconv.runtimes.proof.cost import layer_products
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork

MOST_LAYERS = 5_000
"""Of a network that are kept; a page shows fewer."""
_BITS = {
    **dict.fromkeys(("float64", "int64"), 64),
    **dict.fromkeys(("float16", "bfloat16"), 16),
    **dict.fromkeys(("int8", "uint8", "bool", "float8"), 8),
    **dict.fromkeys(("int4", "float4"), 4),
}
_USUAL_BITS = 32
_WEIGHTS = ("kernel", "bias", "scale", "shift", "power")
_POINTWISE = frozenset(
    ("ACTIVATION", "UNARY", "ELEMENTWISE", "SCALE", "CAST", "QUANTIZE", "DEQUANTIZE", "PARAMETRIC_RELU")
)
_NOTHING = frozenset(("SHAPE", "ASSERTION", "IDENTITY", "SQUEEZE", "UNSQUEEZE"))
"""Layers that move no element."""


def layer_table(network: ReadNetwork, sizes: KnownSizes) -> LayerTable:
    """Returns the layers of a network.

    Args:
        network: As it was read back.
        sizes: The shapes of the tensors that are the model's too.
    """
    points = sizes.points
    shapes = [with_inner(network, model_shapes) for model_shapes in sizes.shapes]
    layers = _of_values(network)
    first = layers[:MOST_LAYERS]
    used = list(dict.fromkeys(n for layer in first for n in (*layer.inputs, *layer.outputs) if n is not None))
    places = {number: place for place, number in enumerate(used)}
    weigher = _Weigher.of(network, shapes[: sizes.profiles])
    tensors = (network.tensors[number] for number in used)
    return LayerTable(
        tuple(
            TableTensor(
                tensor.name, tensor.dtype, _named(tensor.shape, tensor.name, shapes, points if points[0] else ())
            )
            for tensor in tensors
        ),
        tuple(weigher.layer(layer, places) for layer in first),
        aside=len(network.layers) - len(layers),
        left=len(layers) - len(first),
    )


def _of_values(network: ReadNetwork) -> list[ReadLayer]:
    """Returns the layers whose results depend on the values of inputs: the others are done once, or compute sizes."""
    varying = set(network.inputs)
    before = 0
    # What comes round in a loop stands further on in the network's order.
    while before != len(varying):
        before = len(varying)
        for layer in network.layers:
            if layer.kind != "SHAPE" and not varying.isdisjoint(layer.inputs):
                varying.update(layer.outputs)
    return [layer for layer in network.layers if not layer.outputs or not varying.isdisjoint(layer.outputs)]


def _named(
    shape: Shape | None, name: str, shapes: Sequence[Mapping[str, Shape]], points: Sequence[Mapping[str, int]]
) -> tuple[int | str, ...] | None:
    candidates = [by_name.get(name) for by_name in shapes]
    rank = next(
        (len(candidate) for candidate in candidates if candidate is not None), None if shape is None else len(shape)
    )
    if rank is None:
        return None
    static = shape if shape is not None and len(shape) == rank else (-1,) * rank
    columns = [[None if candidate is None else candidate[axis] for candidate in candidates] for axis in range(rank)]
    return tuple(
        size if size >= 0 else named_size(column, points) if points else _one(column)
        for size, column in zip(static, columns, strict=True)
    )


def _one(column: Sequence[int | None]) -> int | str:
    return UNKNOWN if column[0] is None else column[0]


@frozen
class _Weigher:
    """Tells what a network's layers cost at some sizes.

    Args:
        network: The network.
        sizes: The shapes of its tensors at each, by name.
        private: Numbers of tensors that a layer makes of the values of inputs, and one other reads.
    """

    network: ReadNetwork
    sizes: Sequence[Mapping[str, Shape]]
    private: frozenset[int]

    @classmethod
    def of(cls, network: ReadNetwork, sizes: Sequence[Mapping[str, Shape]]) -> _Weigher:
        """Returns that of a network."""
        reads = Counter(n for layer in network.layers for n in layer.inputs if n is not None)
        reads.update(network.outputs)
        outputs = {n for layer in _of_values(network) for n in layer.outputs}
        return cls(network, sizes, frozenset(n for n in outputs if reads[n] == 1))

    def layer(self, layer: ReadLayer, places: Mapping[int, int]) -> TableLayer:
        """Returns a layer; `places` has the positions of its tensors."""
        inner = self._inner(layer)
        return TableLayer(
            layer.name,
            layer.kind,
            layer.onnx_node,
            tuple(None if number is None else places[number] for number in layer.inputs),
            tuple(places[number] for number in layer.outputs),
            tuple(self._products(layer, size) for size in self.sizes),
            tuple(self._moved(layer, inner, size) for size in self.sizes),
            None if inner is None else places[inner],
        )

    def _inner(self, layer: ReadLayer) -> int | None:
        """Returns the input that need not be written, since the layer can be part of the one that makes it."""
        if layer.kind not in _POINTWISE:
            return None
        return next((number for number in layer.inputs if number in self.private), None)

    def _products(self, layer: ReadLayer, shapes: Mapping[str, Shape]) -> float | None:
        if any(self._bytes(number, shapes) is None for number in _tensors(layer)):
            return None
        return layer_products(self.network, layer, shapes)

    def _moved(self, layer: ReadLayer, inner: int | None, shapes: Mapping[str, Shape]) -> float | None:
        if layer.kind in _NOTHING or (layer.kind == "SHUFFLE" and not _turns(layer)):
            return 0.0
        tensors = [self._bytes(number, shapes) for number in _tensors(layer)]
        amounts = [amount for amount in tensors if amount is not None]
        if len(amounts) < len(tensors):
            return None
        weights = sum(int(getattr(layer.values.get(name), "nbytes", 0)) for name in _WEIGHTS)
        saved = 0.0 if inner is None else 2 * (self._bytes(inner, shapes) or 0.0)
        return max(weights + sum(amounts) - saved, 0.0)

    def _bytes(self, number: int, shapes: Mapping[str, Shape]) -> float | None:
        tensor = self.network.tensors[number]
        shape = shapes.get(tensor.name)
        return None if shape is None else math.prod(shape) * _BITS.get(tensor.dtype, _USUAL_BITS) / 8


def _tensors(layer: ReadLayer) -> list[int]:
    return [number for number in (*layer.inputs, *layer.outputs) if number is not None]


def _turns(layer: ReadLayer) -> bool:
    """Whether a shuffle changes the order of elements, and not only the sizes of axes."""
    turns = (layer.values.get("first_transpose") or (), layer.values.get("second_transpose") or ())
    return any(list(permutation) != sorted(permutation) for permutation in turns)
