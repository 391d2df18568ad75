"""Nodes in topological order."""

from __future__ import annotations

import graphlib

import onnx

from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import reads


def sort(model: OnnxModel) -> None:
    """Puts the nodes of every graph behind those whose results they read, as ONNX wants them."""
    moved = [_sort(scope.graph) for scope in reversed(model.scopes)]
    if any(moved):
        model.touch()


def _sort(graph: onnx.GraphProto) -> bool:
    """Sorts one graph. Returns whether it was not."""
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = [{producers[n] for n in reads(node) if n in producers} - {i} for i, node in enumerate(graph.node)]
    if all(max(sources, default=-1) < index for index, sources in enumerate(needs)):
        return False
    try:
        order = list(graphlib.TopologicalSorter(dict(enumerate(needs))).static_order())
    except graphlib.CycleError:
        return False
    nodes = [graph.node[index] for index in order]
    del graph.node[:]
    graph.node.extend(nodes)
    return True
