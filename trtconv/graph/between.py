"""The nodes of a model that lie between some of its tensors."""

from __future__ import annotations

from collections.abc import Collection

from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import reads


def nodes_between(
    model: OnnxModel, sources: Collection[str], targets: Collection[str], elsewhere: Collection[str] = ()
) -> list[int] | None:
    """Returns the nodes of a main graph that make tensors out of others.

    Args:
        model: The model.
        sources: What there is, besides constants.
        targets: What is made.
        elsewhere: Tensors that none of the nodes may make.

    Returns:
        Their positions, in order; None where it takes something else, or makes what it may not.
    """
    graph, columns, producers = model.proto.graph, model.main.columns, model.main.producers
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {tensor.values.name for tensor in graph.sparse_initializer}
    nodes: set[int] = set()
    names = list(targets)
    while names:
        name = names.pop()
        index = producers.get(name)
        if index in nodes or name in sources or (name in constants and name not in targets):
            continue
        if index is None or not set(elsewhere).isdisjoint(columns.outputs[index]):
            return None
        nodes.add(index)
        names += reads(columns.nodes[index])
    return sorted(nodes)
