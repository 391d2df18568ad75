"""The nodes of a graph, read out of protobuf once: each look at a protobuf costs as much as ten at a list."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto

from trtconv.graph import walk

_READ = ("names", "ops", "domains", "inputs", "outputs", "attributes")


class Columns:
    """The nodes of one graph or function, column by column; every column has one entry a node.

    Args:
        nodes: The NodeProtos. Whoever changes them makes new columns, or calls `replace`.

    Attributes:
        nodes: The live NodeProtos.
        names: Their names, possibly empty.
        ops: Their operators.
        domains: Their operators' domains.
        inputs: The names of their inputs; empty for one that is left out.
        outputs: The names of their outputs.
        attributes: Their live AttributeProtos.
    """

    def __init__(self, nodes: Iterable[onnx.NodeProto]) -> None:
        self.nodes = list(nodes)
        self.names: list[str] = [node.name for node in self.nodes]
        self.ops: list[str] = [node.op_type for node in self.nodes]
        self.domains: list[str] = [node.domain for node in self.nodes]
        self.inputs: list[Sequence[str]] = [node.input[:] for node in self.nodes]
        self.outputs: list[Sequence[str]] = [node.output[:] for node in self.nodes]
        self.attributes: list[Sequence[AttributeProto]] = [node.attribute[:] for node in self.nodes]

    def __len__(self) -> int:
        return len(self.nodes)

    def bodies(self) -> list[tuple[int, str, onnx.GraphProto]]:
        """Returns the graphs inside these nodes: position of the node, name of the attribute, graph."""
        return [
            (index, attribute.name, body)
            for index, attributes in enumerate(self.attributes)
            for attribute in attributes
            if attribute.type in walk.BODIES
            for body in walk.bodies(attribute)
        ]

    def tensors(self) -> Iterator[onnx.TensorProto]:
        """Returns the tensors that attributes of these nodes hold, without those of the graphs inside them."""
        return walk.tensors(itertools.chain.from_iterable(self.attributes))

    def replace(self, counts: Mapping[int, int], nodes: Iterable[onnx.NodeProto]) -> None:
        """Takes note that some nodes were replaced by others, or removed.

        Args:
            counts: Position of each such node to the number of nodes that stand in its place.
            nodes: All nodes as they are now.
        """
        self.nodes = list(nodes)
        places = sorted(counts)
        # Each replaced node moves what comes after it.
        begins = list(itertools.accumulate((counts[index] - 1 for index in places), initial=0))
        fresh = Columns(
            self.nodes[index + shift + step]
            for index, shift in zip(places, begins, strict=False)
            for step in range(counts[index])
        )
        for part in _READ:
            column = _woven(getattr(self, part), iter(getattr(fresh, part)), counts, places)
            setattr(self, part, column)


def _woven(old: Sequence[Any], fresh: Iterator[Any], counts: Mapping[int, int], places: Sequence[int]) -> list[Any]:
    """Returns a column with the entries of the new nodes in the place of those that went."""
    column: list[Any] = []
    start = 0
    for index in places:
        column += old[start:index]
        column += itertools.islice(fresh, counts[index])
        start = index + 1
    return column + list(old[start:])
