"""What a report keeps of a parsed network: its layers, with their work at the sizes that profiles are tuned for."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from trtconv.core.dims import Shape, ShapeProfile
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.layers import LayerTable, TableLayer, TableTensor
from trtconv.core.documents.memory import MemoryRecord
from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.profiles import Sized
from trtconv.runtimes.layer_shapes import with_inner
from trtconv.runtimes.proof.cost import layer_products
from trtconv.runtimes.tensorrt import ParsedNetwork
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork
from trtconv.shapes.model_shapes import model_shapes
from trtconv.shapes.named_sizes import UNKNOWN, named_size

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


def with_network(report: BuildReport, network: ParsedNetwork, model: OnnxModel, sized: Sized) -> BuildReport:
    """Keeps the network in the report; of an engine that can be refitted also what a refit is held to.

    Args:
        report: The report so far.
        network: The parsed network.
        model: What the parser was given.
        sized: Its profiles.
    """
    read = network.read_back()
    memory = MemoryRecord(model.nbytes, tuple(sized.memory)) if sized.memory else None
    report = dataclasses.replace(report, layers=layer_table(read, model, sized.profiles), memory=memory)
    if not report.plan.options.refits:
        return report
    # Loaded only here: most engines are never refitted.
    from trtconv.runtimes.network_record import record
    from trtconv.runtimes.plugin_layers import with_meanings

    return dataclasses.replace(report, network=record(with_meanings(read, model)))


def layer_table(network: ReadNetwork, model: OnnxModel, profiles: Sequence[ShapeProfile]) -> LayerTable:
    """Returns the layers of a network.

    Args:
        network: As it was read back.
        model: What the parser was given.
        profiles: Where sizes lie.
    """
    points = _points(profiles)
    names = list(points[0])
    known = model_shapes(model, points)
    shapes = [with_inner(network, each) for each in known]
    listed = _of_values(network)
    kept = listed[:MOST_LAYERS]
    used = list(dict.fromkeys(n for layer in kept for n in (*layer.inputs, *layer.outputs) if n is not None))
    places = {number: place for place, number in enumerate(used)}
    weigher = _Weigher.of(network, shapes[: max(len(profiles), 1)])
    tensors = (network.tensors[number] for number in used)
    return LayerTable(
        tuple(
            TableTensor(each.name, each.dtype, _named(each.shape, each.name, shapes, points if names else ()))
            for each in tensors
        ),
        tuple(weigher.layer(layer, places) for layer in kept),
        aside=len(network.layers) - len(listed),
        left=len(listed) - len(kept),
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


def _points(profiles: Sequence[ShapeProfile]) -> list[Mapping[str, int]]:
    """Returns sizes of the free dimensions: opt of each profile, then the first one with one dimension changed."""
    opts = [{name: bound.opt for name, bound in profile.dims.items()} for profile in profiles] or [{}]
    first = profiles[0].dims if profiles else {}
    changed = [
        {**opts[0], name: size}
        for name, bound in first.items()
        for size in dict.fromkeys((bound.min, bound.max))
        if size != bound.opt
    ]
    return [*opts, *changed]


def _named(
    shape: Shape | None, name: str, shapes: Sequence[Mapping[str, Shape]], points: Sequence[Mapping[str, int]]
) -> tuple[int | str, ...] | None:
    found = [each.get(name) for each in shapes]
    rank = next((len(each) for each in found if each is not None), None if shape is None else len(shape))
    if rank is None:
        return None
    static = shape if shape is not None and len(shape) == rank else (-1,) * rank
    columns = [[None if each is None else each[axis] for each in found] for axis in range(rank)]
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
        made = {n for layer in _of_values(network) for n in layer.outputs}
        return cls(network, sizes, frozenset(n for n in made if reads[n] == 1))

    def layer(self, layer: ReadLayer, places: Mapping[int, int]) -> TableLayer:
        """Returns a layer; `places` has the positions of its tensors."""
        inner = self._inner(layer)
        return TableLayer(
            layer.name,
            layer.kind,
            layer.onnx_node,
            tuple(None if number is None else places[number] for number in layer.inputs),
            tuple(places[number] for number in layer.outputs),
            tuple(self._products(layer, each) for each in self.sizes),
            tuple(self._moved(layer, inner, each) for each in self.sizes),
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
        known = [each for each in tensors if each is not None]
        if len(known) < len(tensors):
            return None
        weights = sum(int(getattr(layer.values.get(name), "nbytes", 0)) for name in _WEIGHTS)
        saved = 0.0 if inner is None else 2 * (self._bytes(inner, shapes) or 0.0)
        return max(weights + sum(known) - saved, 0.0)

    def _bytes(self, number: int, shapes: Mapping[str, Shape]) -> float | None:
        tensor = self.network.tensors[number]
        shape = shapes.get(tensor.name)
        return None if shape is None else math.prod(shape) * _BITS.get(tensor.dtype, _USUAL_BITS) / 8


def _tensors(layer: ReadLayer) -> list[int]:
    return [number for number in (*layer.inputs, *layer.outputs) if number is not None]


def _turns(layer: ReadLayer) -> bool:
    """Whether a shuffle changes the order of elements, and not only the sizes of axes."""
    turns = (layer.values.get("first_transpose") or (), layer.values.get("second_transpose") or ())
    return any(list(each) != sorted(each) for each in turns)
