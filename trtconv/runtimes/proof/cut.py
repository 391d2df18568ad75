"""Cuts a network and its model, between tensors that both have, into pieces that can be run by themselves.

A tensor is a seam where the main graph of the model makes it from values of the inputs, and the network has one of its
name outside of loops. What only follows from shapes is no seam: it is computed in each piece that needs it, so that it
fits the sizes at which the piece is run.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping

from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.tensorrt.readback.flow import Flow
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork

_SHAPES = ("Shape", "Size")
_UNRESTRICTED = frozenset("Conv ConvTranspose Gemm MatMul Add Sub BatchNormalization".split())  # noqa: SIM905
"""Operators whose results may be any numbers."""
_GROUPS = ("loop", "conditional")


@frozen
class Piece:
    """The layers of a network, and the nodes of its model, between the same tensors.

    Args:
        target: The tensor that both compute.
        sources: Tensors that the layers read, or the nodes.
        layers: Positions of the layers.
        nodes: Positions of the nodes in the model's main graph.
        even: Whether both read the same tensors; if not, values that do not belong together may set them apart.
        inside: Seams that do not end it, since it was widened beyond them.
    """

    target: str
    sources: tuple[str, ...]
    layers: tuple[int, ...]
    nodes: tuple[int, ...]
    even: bool
    inside: frozenset[str] = frozenset()


def made_of_values(model: OnnxModel) -> set[str]:
    """Returns the tensors of the main graph that are made of the values of the inputs, and not of sizes alone."""
    inputs = {spec.name for spec in model.inputs}
    names, columns = set(inputs), model.main.columns
    rows = [
        (outputs, read)
        for op, outputs, read in zip(columns.ops, columns.outputs, model.main.reads, strict=True)
        if op not in _SHAPES
    ]
    # A node may stand before what it reads: converters to float16 put the cast of an input last.
    while True:
        later = []
        for outputs, read in rows:
            if names.isdisjoint(read):
                later.append((outputs, read))
            else:
                names.update(name for name in outputs if name)
        if len(later) == len(rows):
            return names - inputs
        rows = later


class Seams:
    """Cuts a network and its model.

    Args:
        network: The network.
        model: The model as the parser was given it.
    """

    def __init__(self, network: ReadNetwork, model: OnnxModel) -> None:
        self._network = network
        self._model = model
        self._reads = model.main.reads
        self._producers = model.main.producers
        self._inputs = {spec.name for spec in model.inputs}
        self._makers: Mapping[int, ReadLayer] = {n: layer for layer in network.layers for n in layer.outputs}
        self._groups: dict[tuple[str, int], list[ReadLayer]] = collections.defaultdict(list)
        for layer in network.layers:
            for group in _GROUPS:
                if group in layer.values:
                    self._groups[group, layer.values[group]].append(layer)
        self.numbers = self._shared()
        """Name of each seam to its number in the network."""

    def _shared(self) -> dict[str, int]:
        loops = Flow(self._network).loops_of
        names = collections.Counter(tensor.name for tensor in self._network.tensors)
        candidates = made_of_values(self._model) | self._inputs
        return {
            tensor.name: tensor.index
            for tensor in self._network.tensors
            if tensor.name in candidates and names[tensor.name] == 1 and not loops[tensor.index]
        }

    def pieces(self) -> Iterator[Piece]:
        """Yields a piece for every seam that the network computes and one of both needs, in its order."""
        needs = {number for layer in self._network.layers for number in layer.inputs} | set(self._network.outputs)
        names = {*itertools.chain.from_iterable(self._reads), *self._model.outputs}
        for layer in self._network.layers:
            for number in layer.outputs:
                name = self._network.tensors[number].name
                # Of a loop of TensorFlow's seven results of eight are read by nobody, and each would be a run of it.
                if number not in needs and name not in names:
                    continue
                if self.numbers.get(name) == number and name in self._producers:
                    yield self.cut(name)

    def wider(self, piece: Piece) -> Piece | None:
        """Returns the piece with those before it in one, None where it begins at the inputs."""
        inner = set(piece.sources) - self._inputs
        if not inner:
            return None
        wide = self.cut(piece.target, piece.inside | inner)
        return wide if wide.sources != piece.sources else None

    def is_restricted(self, piece: Piece) -> bool:
        """Whether a piece starts from tensors that have not all values: what it does with others does not matter."""
        makers = (self._producers[name] for name in piece.sources if name in self._producers)
        return any(self._model.main.columns.ops[index] not in _UNRESTRICTED for index in makers)

    def cut(self, target: str, inside: Iterable[str] = ()) -> Piece:
        """Returns the piece that computes a tensor.

        Args:
            target: The tensor.
            inside: Seams that do not end it.
        """
        within = frozenset(inside)
        layers, read = self._layers(target, within | {target})
        nodes, needed = self._nodes(target, read)
        sources = tuple(sorted(read | needed))
        return Piece(target, sources, tuple(layers), tuple(nodes), read == needed, within)

    def _layers(self, target: str, within: frozenset[str]) -> tuple[list[int], set[str]]:
        """Returns the layers that compute a tensor from seams, but for those within, and those seams."""
        indices: set[int] = set()
        sources: set[str] = set()
        open_ = [self._makers[self.numbers[target]]]
        while open_:
            layer = open_.pop()
            if layer.index in indices:
                continue
            indices.add(layer.index)
            for group in _GROUPS:
                if group in layer.values:
                    open_ += self._groups[group, layer.values[group]]
            for number in layer.inputs:
                if number is None:
                    continue
                name = self._network.tensors[number].name
                if name not in within and self.numbers.get(name) == number:
                    sources.add(name)
                elif number in self._makers:
                    open_.append(self._makers[number])
                else:
                    sources.add(name)
        return sorted(indices), sources

    def _nodes(self, target: str, seams: set[str]) -> tuple[list[int], set[str]]:
        """Returns the nodes that compute a tensor from seams, or from inputs, and what they start from."""
        indices: set[int] = set()
        sources: set[str] = set()
        open_ = [self._producers[target]]
        while open_:
            index = open_.pop()
            if index in indices:
                continue
            indices.add(index)
            for name in self._reads[index]:
                if name in seams or name in self._inputs:
                    sources.add(name)
                elif name in self._producers:
                    open_.append(self._producers[name])
        return sorted(indices), sources
