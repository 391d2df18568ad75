"""Topological order of the nodes of a graph: each behind those whose results it reads."""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Mapping

import onnx

from trtconv.graph.nodes import Columns
from trtconv.graph.walk import inner_graphs, reads


def is_in_order(producers: Mapping[str, int], columns: Columns) -> bool:
    """Whether all nodes of a graph stand behind those whose results they read.

    Args:
        producers: The tensors that its nodes make, to the positions of these.
        columns: Its nodes.
    """
    # What graphs inside nodes read is looked for in these alone: most nodes have none.
    inner = ((index, reads(columns.nodes[index])) for index in {index for index, *_ in columns.bodies()})
    rows = itertools.chain(enumerate(columns.inputs), inner)
    return all(producers.get(name, -1) < index for index, names in rows for name in names)


def in_order(data: bytes) -> bytes:
    """Returns a model whose nodes stand behind those whose results they read, in every graph.

    Args:
        data: A serialized ModelProto.
    """
    proto = onnx.ModelProto.FromString(data)
    # The inner ones first: a node that is moved is copied with its graphs.
    for graph in reversed((proto.graph, *inner_graphs(proto.graph.node))):
        sort_graph(graph)
    result: bytes = proto.SerializeToString()
    return result


def sort_graph(graph: onnx.GraphProto) -> bool:
    """Sorts the nodes of one graph; returns whether they were not, and have an order."""
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
