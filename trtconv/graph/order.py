"""Nodes in topological order, and what a node reads, its bodies included."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator

import onnx

from trtconv.graph.model import OnnxModel


def sort(model: OnnxModel) -> None:
    """Puts the nodes of every graph behind those whose results they read, as ONNX wants them."""
    moved = [_sort(scope.graph) for scope in reversed(model.scopes)]
    if any(moved):
        model.touch()


def _sort(graph: onnx.GraphProto) -> bool:
    """Sorts one graph. Returns whether it was not."""
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = [{producers[n] for n in reads(node) if n in producers} - {i} for i, node in enumerate(graph.node)]
    if all(max(each, default=-1) < index for index, each in enumerate(needs)):
        return False
    try:
        order = list(graphlib.TopologicalSorter(dict(enumerate(needs))).static_order())
    except graphlib.CycleError:
        return False
    nodes = [graph.node[index] for index in order]
    del graph.node[:]
    graph.node.extend(nodes)
    return True


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yields the tensors that a node reads, those that its graphs take from outside too."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from reads(inner)
