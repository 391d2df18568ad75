"""Where quantisers stand, and which of them share one scale.

A quantised layer reads its input through QuantizeLinear and DequantizeLinear. Where the input was only moved about
(Concat, MaxPool, Resize to the nearest), what went in is quantised too, with the same scale: TensorRT then moves int8
values. But what a Concat takes and others read too, as the skips of a U-Net, has a scale of its own: where all was
one, TensorRT 8.6 computed a U-Net wrongly (docs/quantization.md). Where a convolution's result is added to another
branch, the other branch is quantised, so that the addition becomes part of the layer; a matrix product takes in its
bias alone, and the stream that a transformer adds to stays in float, as do its normalisation and softmax. A product of
two computed matrices reads both through quantisers, right in front of it. Nothing is quantised on the way to a graph
output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx

from trtconv.core.frozen import frozen
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.precision.quantize.kinds import INT8, QuantizationKind
from trtconv.precision.quantize.layers import WeightedLayer, behind, wants_quantizer_behind
from trtconv.precision.quantize.operators import CONVOLUTIONS

Edge = tuple[int, int]
"""A node's position and which of its inputs."""


@frozen
class Placement:
    """Quantisers of a network.

    Args:
        layers: Positions of the layers whose weights and inputs, or both computed matrices, are quantised.
        edges: Tensor to the inputs of nodes that read it quantised, in the order of the graph.
        shared: Tensor to the first of those with which it shares a scale.
        apart: Tensors, and those that Concat makes of them, whose scales must differ.
    """

    layers: tuple[int, ...]
    edges: dict[str, tuple[Edge, ...]]
    shared: dict[str, str]
    apart: tuple[tuple[str, str], ...] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors that are quantised."""
        return tuple(self.edges)


def measured(scope: Scope, placement: Placement) -> tuple[str, ...]:
    """Returns the tensors whose ranges are needed, also where some of the layers stay in float after all.

    Of a sum the other branch is then quantised.
    """
    sums = {index for edges in placement.edges.values() for index, _ in edges} & set(scope.positions("Add"))
    branches = (name for index in sorted(sums) for name in scope.columns.inputs[index])
    return tuple(dict.fromkeys((*placement.tensors, *branches)))


def place_of(kind: QuantizationKind, scope: Scope, layers: Collection[WeightedLayer]) -> Placement:
    """Places the quantisers of a kind; arguments otherwise as of `place`.

    float8 stands in front of each layer alone: nothing is known of what TensorRT moves about or adds in it.
    """
    if kind is INT8:
        return place(scope, layers)
    edges: dict[str, tuple[Edge, ...]] = {}
    for layer in sorted(layers, key=lambda layer: layer.index) if kind.inputs else ():
        for tensor, edge in layer.edges:
            edges[tensor] = (*edges.get(tensor, ()), edge)
    return Placement(tuple(sorted(layer.index for layer in layers)), edges, {name: name for name in edges})


def place(scope: Scope, layers: Collection[WeightedLayer]) -> Placement:
    """Places quantisers for layers of the main graph.

    Args:
        scope: The main graph.
        layers: Those that are to run in int8.
    """
    rest = sorted(layers, key=lambda layer: layer.index)
    while True:
        work = _Placing(scope, rest)
        edges = work.edges()
        bare = [layer for layer in rest if _misses_quantizer(scope, layer, edges)]
        if not bare:
            indices = tuple(layer.index for layer in rest)
            return Placement(indices, edges, work.shared(), tuple(work.apart))
        rest = [layer for layer in rest if layer not in bare]


def _misses_quantizer(scope: Scope, layer: WeightedLayer, edges: dict[str, tuple[Edge, ...]]) -> bool:
    if not wants_quantizer_behind(scope, layer.node):
        return False
    return behind(scope, layer.node.output[0]) not in edges


class _Placing:
    """Quantisers being placed."""

    def __init__(self, scope: Scope, layers: Collection[WeightedLayer]) -> None:
        self._scope = scope
        self._layers = {layer.index for layer in layers}
        self._outputs = frozenset(value.name for value in scope.graph.output)
        self._edges: dict[str, set[Edge]] = {}
        self._parent: dict[str, str] = {}
        self.apart: list[tuple[str, str]] = []
        for layer in layers:
            if layer.slots == (0,):
                self._quantize(*layer.edges[0])
        # Not what a Concat of keys or values takes: it is often a cache, and the Concat its next state, an output.
        for tensor, edge in (edge for layer in layers if layer.slots != (0,) for edge in layer.edges):
            self._edges.setdefault(tensor, set()).add(edge)
        for index in scope.positions("Add"):
            self._add(index)

    def edges(self) -> dict[str, tuple[Edge, ...]]:
        """Returns tensor to the inputs that read it quantised."""
        return {tensor: tuple(sorted(edges)) for tensor, edges in self._edges.items()}

    def shared(self) -> dict[str, str]:
        """Returns tensor to the one that stands for all that share its scale."""
        return {tensor: self._root(tensor) for tensor in self._edges}

    def _root(self, tensor: str) -> str:
        while self._parent.get(tensor, tensor) != tensor:
            tensor = self._parent[tensor]
        return tensor

    def _quantize(self, tensor: str, edge: Edge) -> None:
        pending = [(tensor, edge)]
        while pending:
            tensor, edge = pending.pop()
            is_known = tensor in self._edges
            self._edges.setdefault(tensor, set()).add(edge)
            if is_known:
                continue
            for source, inside in self._moved_from(tensor):
                self._join(source, tensor, inside[0])
                pending.append((source, inside))

    def _join(self, source: str, result: str, index: int) -> None:
        """Lets a tensor and what a node makes of it share a scale, or keeps them apart."""
        if self._scope.columns.nodes[index].op_type == "Concat" and self._scope.uses_of(source) > 1:
            self.apart.append((source, result))
        else:
            self._parent[self._root(source)] = self._root(result)

    def _moved_from(self, tensor: str) -> Iterator[tuple[str, Edge]]:
        """Yields the tensors that were only moved about to make one, and where they are read."""
        index = self._scope.producers.get(tensor)
        node = None if index is None else self._scope.columns.nodes[index]
        if node is None or index is None or not _moves(node) or tensor != node.output[0] or tensor in self._outputs:
            return
        sources = list(node.input) if node.op_type == "Concat" else [node.input[0]]
        if any(self._scope.values(name) is not None for name in sources):
            return
        for slot, name in enumerate(sources):
            yield name, (index, slot)

    def _add(self, index: int) -> None:
        """Quantises the branch that is added to the result of a quantised layer."""
        node = self._scope.columns.nodes[index]
        if behind(self._scope, node.output[0]) not in self._edges:
            return
        fused = [slot for slot, name in enumerate(node.input) if self._is_result(name)]
        if not fused:
            return
        # Of two such branches the layer that comes last takes the other one in.
        last = max(fused, key=lambda slot: self._scope.producers[node.input[slot]])
        other = node.input[1 - last]
        if self._scope.values(other) is None:
            self._quantize(other, (index, 1 - last))

    def _is_result(self, name: str) -> bool:
        """Whether a tensor is the result of a quantised convolution and used nowhere else."""
        index = self._scope.producers.get(name)
        if index not in self._layers or self._scope.columns.nodes[index].op_type not in CONVOLUTIONS:
            return False
        return self._scope.uses_of(name) == 1


def _moves(node: onnx.NodeProto) -> bool:
    if node.op_type == "Resize":
        crops = attribute(node, "coordinate_transformation_mode") == b"tf_crop_and_resize"
        return attribute(node, "mode", b"nearest") == b"nearest" and not crops
    return node.op_type in ("Concat", "MaxPool") and len(node.output) == 1
