"""The graphs inside nodes, what nodes read, and what Constant nodes hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from trtconv.graph.types import ONNX_DOMAINS

BODIES = frozenset({AttributeProto.GRAPH, AttributeProto.GRAPHS})
"""Types of attributes that hold graphs."""
_NUMBERS = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
_TEXTS = ("value_string", "value_strings")


def bodies(attribute: AttributeProto) -> Sequence[onnx.GraphProto]:
    """Returns the graphs that an attribute holds, without those inside them."""
    if attribute.type == AttributeProto.GRAPH:
        return (attribute.g,)
    graphs: Sequence[onnx.GraphProto] = attribute.graphs
    return graphs if attribute.type == AttributeProto.GRAPHS else ()


def inner_graphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """Yields every graph inside nodes, however deep, each before those inside it."""
    for node in nodes:
        for attribute in node.attribute:
            for body in bodies(attribute):
                yield body
                yield from inner_graphs(body.node)


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yields nodes, each followed by those in the graphs inside it."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for body in bodies(attribute):
                yield from all_nodes(body.node)


def operators(nodes: Iterable[onnx.NodeProto]) -> set[tuple[str, str]]:
    """Returns domain and type of every operator that is used, in the graphs inside the nodes too."""
    return {(node.domain, node.op_type) for node in all_nodes(nodes)}


def tensors(attributes: Iterable[AttributeProto]) -> Iterator[TensorProto]:
    """Yields the tensors that attributes hold, without those of the graphs inside them."""
    for attribute in attributes:
        kind = attribute.type
        if kind == AttributeProto.TENSOR:
            yield attribute.t
        elif kind == AttributeProto.TENSORS:
            yield from attribute.tensors
        elif kind == AttributeProto.SPARSE_TENSOR:
            yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
        elif kind == AttributeProto.SPARSE_TENSORS:
            yield from (part for sparse in attribute.sparse_tensors for part in (sparse.values, sparse.indices))


def reads(node: onnx.NodeProto) -> set[str]:
    """Returns the tensors that a node reads, and those that the graphs inside it take from around it."""
    names = set(node.input)
    for attribute in node.attribute:
        for body in bodies(attribute):
            names |= captured(body)
    return names - {""}


def positions_of_readers(rows: Iterable[Iterable[str]]) -> dict[str, list[int]]:
    """Returns tensor name to the positions of the nodes that take it, in their order, of the inputs of nodes."""
    readers: dict[str, list[int]] = {}
    for index, names in enumerate(rows):
        for name in names:
            readers.setdefault(name, []).append(index)
    return readers


def captured(body: onnx.GraphProto) -> set[str]:
    """Returns the tensors that a graph takes from around it."""
    own = {value.name for value in (*body.input, *body.initializer)}
    own.update(sparse.values.name for sparse in body.sparse_initializer)
    own.update(name for node in body.node for name in node.output)
    return {value.name for value in body.output}.union(*map(reads, body.node)) - own


def constant_of(node: onnx.NodeProto) -> TensorProto | None:
    """Returns what a Constant node holds, however it is spelled.

    Returns:
        The node's own tensor where that is how it is spelled; a new one for numbers and texts; None for a sparse one,
        for a value that is an argument of a function, and for any other node.
    """
    if node.op_type != "Constant" or node.domain not in ONNX_DOMAINS:
        return None
    attribute = next((a for a in node.attribute if not a.ref_attr_name), None)
    if attribute is None:
        return None
    if attribute.name == "value":
        return attribute.t
    value = helper.get_attribute_value(attribute)
    if attribute.name in _NUMBERS:
        return numpy_helper.from_array(np.asarray(value, _NUMBERS[attribute.name]), node.output[0])
    if attribute.name in _TEXTS:
        texts, dims = ([value], ()) if isinstance(value, bytes) else (value, (len(value),))
        return TensorProto(name=node.output[0], data_type=TensorProto.STRING, dims=dims, string_data=texts)
    return None
