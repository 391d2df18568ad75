"""Nodes in topological order."""

from __future__ import annotations

from trtconv.graph.model import OnnxModel
from trtconv.graph.node_order import sort_graph


def sort(model: OnnxModel) -> None:
    """Puts the nodes of every graph behind those whose results they read, as ONNX wants them."""
    moved = [sort_graph(scope.graph) for scope in reversed(model.scopes)]
    if any(moved):
        model.touch()
