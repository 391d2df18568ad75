"""Weights and inputs of element types that TensorRT has not."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import TensorProto

from trtconv.graph.model import OnnxModel
from trtconv.graph.types import dtype_name
from trtconv.graph.walk import reads

_LACKED = frozenset(
    map(TensorProto.DataType.Value, ("STRING", "INT16", "UINT16", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128"))
)


def readers_of_lacking_types(model: OnnxModel) -> Iterator[tuple[int, str, str]]:
    """Returns the nodes of the main graph that read weights or inputs of a type that TensorRT has not.

    Returns:
        Position of the node, name of the tensor, its type.
    """
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.proto.graph.input}
    kinds |= {name: tensor.data_type for name, tensor in model.main.initializers.items()}
    for index, node in enumerate(model.main.columns.nodes):
        for name in reads(node):
            if kinds.get(name) in _LACKED:
                yield index, name, dtype_name(kinds[name])
