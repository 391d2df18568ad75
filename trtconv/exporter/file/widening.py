"""A file in float32, to compare what ONNX Runtime has no kernels for: convolutions in float64, most of bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from trtconv.exporter.file.write import ONE_PIECE_LIMIT
from trtconv.graph.walk import all_nodes, inner_graphs, tensors

_WIDENED = (TensorProto.DOUBLE, TensorProto.BFLOAT16)


def in_float32(path: Path) -> bytes | None:
    """Returns a model with float32 in place of float64 and bfloat16, serialized; None where it is too large for that.

    Args:
        path: The model; its external data lies beside it.
    """
    proto = onnx.load(path)
    if proto.ByteSize() > ONE_PIECE_LIMIT:
        return None
    nodes = [node for function in proto.functions for node in function.node] + list(proto.graph.node)
    for graph in (proto.graph, *inner_graphs(nodes)):
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.elem_type in _WIDENED:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        for tensor in graph.initializer:
            _widen(tensor)
    for function in proto.functions:
        del function.value_info[:]
    for node in all_nodes(nodes):
        for tensor in tensors(node.attribute):
            _widen(tensor)
        for attribute in _types(node):
            attribute.i = TensorProto.FLOAT
    written: bytes = proto.SerializeToString()
    return written


def _widen(tensor: TensorProto) -> None:
    if tensor.data_type in _WIDENED:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _types(node: onnx.NodeProto) -> Iterator[onnx.AttributeProto]:
    """Yields the attributes that say of which type a result is, where it is one that is widened."""
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "stash_type") and attribute.i in _WIDENED:
            yield attribute
