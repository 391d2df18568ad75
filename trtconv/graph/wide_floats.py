"""A model with its narrow floats in float32: what it computes but for their rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import all_nodes, inner_graphs, tensors

_NARROW = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_TYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_dtype", "output_datatype", "precision", "softmax_precision", "stash_type"}
)
"""Attributes of ONNX's operators that hold a type."""


def in_float32(model: OnnxModel) -> OnnxModel:
    """Returns a copy of a model in which whatever is float16 or bfloat16 is float32, inputs and outputs too.

    Constants have the values that they have in the model, rounded as they are there.
    """
    wide = model.copy()
    for tensor in _tensors(wide.proto):
        if tensor.data_type in _NARROW:
            values = model.array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for graph in _graphs(wide.proto):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in _NARROW:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in _nodes(wide.proto):
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _NARROW:
                attribute.i = TensorProto.FLOAT
    wide.touch()
    return wide


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    yield from all_nodes(proto.graph.node)
    for function in proto.functions:
        yield from all_nodes(function.node)


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield proto.graph
    yield from inner_graphs(proto.graph.node)
    for function in proto.functions:
        yield from inner_graphs(function.node)


def _tensors(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    for graph in _graphs(proto):
        yield from graph.initializer
    for node in _nodes(proto):
        yield from tensors(node.attribute)
