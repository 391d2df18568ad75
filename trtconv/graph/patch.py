"""Nodes of one graph replaced by others, protobuf by protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.splice import prune, splice


class Patch:
    """What takes the place of some nodes of a graph; nothing changes before `close_patches`.

    Args:
        model: The model.
        scope: One of its graphs.
    """

    def __init__(self, model: OnnxModel, scope: Scope) -> None:
        self.model = model
        self.scope = scope
        self._fresh: dict[int, list[onnx.NodeProto]] = {}
        self._initializers: list[onnx.TensorProto] = []

    def __bool__(self) -> bool:
        return bool(self._fresh)

    def replace(
        self, index: int, nodes: Sequence[onnx.NodeProto], initializers: Iterable[onnx.TensorProto] = ()
    ) -> None:
        """Puts nodes, in topological order, where a node was; they keep what the file says of it.

        Args:
            index: Position of the node that goes.
            nodes: What takes its place.
            initializers: The constants that these take.
        """
        old = self.scope.columns.nodes[index]
        for node in nodes:
            node.doc_string = node.doc_string or old.doc_string
            if not node.metadata_props:
                node.metadata_props.extend(old.metadata_props)
        self._fresh[index] = list(nodes)
        self._initializers += initializers

    def write(self) -> set[str]:
        """Writes the nodes into the graph; returns the tensors that the replaced ones took."""
        columns, uses = self.scope.columns, self.scope.whole.uses
        dropped: set[str] = set()
        for index, nodes in self._fresh.items():
            dropped.update(columns.inputs[index])
            uses.subtract(columns.inputs[index])
            for node in nodes:
                uses.update(node.input)
        self.scope.graph.initializer.extend(self._initializers)
        splice(self.scope.graph, self._fresh)
        columns.replace({index: len(nodes) for index, nodes in self._fresh.items()}, self.scope.graph.node)
        self.scope.forget()
        return dropped


def close_patches(patches: Iterable[Patch]) -> bool:
    """Writes the patches of the graphs of one model, and drops what nothing uses any more.

    Returns:
        Whether the model changed.
    """
    edited = [patch for patch in patches if patch]
    if not edited:
        return False
    model = edited[0].model
    # Up to IR version 3 every initializer must be a graph input.
    model.proto.ir_version = max(model.proto.ir_version, 4)
    holds_bodies = any(patch.scope.columns.bodies() for patch in edited)
    dropped = [(patch.scope.graph, patch.write()) for patch in edited]
    if holds_bodies or any(patch.scope.columns.bodies() for patch in edited):
        # Graphs inside nodes may have come and gone.
        model.touch()
    places = [(scope.position, names) for scope in model.scopes for graph, names in dropped if scope.graph is graph]
    prune(model, dict(places))
    return True
