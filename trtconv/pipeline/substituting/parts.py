"""A part of the main graph between some of its tensors, as a model of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import onnx
from onnx import helper, numpy_helper

from trtconv.core.frozen import frozen
from trtconv.graph.chance import RANDOM
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import bodies, reads

_MOST_NODES = 500
_MOST_CONSTANT = 1 << 22
"""Elements."""
_OTHERS = frozenset(
    (*("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN", "QuantizeLinear", "DequantizeLinear"), *RANDOM)
)
"""Operators of networks and of chance, which no plugin stands for."""


@frozen
class GraphPart:
    """A part.

    Args:
        model: It alone, serialized; what is dynamic in its inputs has no name.
        inputs: The tensors that go into it, in the order that its kind has them.
        outputs: Those that come out.
        nodes: Positions of its nodes in the main graph.
    """

    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: frozenset[int]


def upstream(scope: Scope, name: str) -> Iterator[str]:
    """Yields a tensor and those that it is computed from, the nearest first."""
    queue, names = [name], {name}
    for tensor in queue:
        yield tensor
        node = scope.producer(tensor)
        more = [] if node is None else [one for one in node.input if one and one not in names]
        names.update(more)
        queue += more


def downstream(scope: Scope, index: int) -> set[int]:
    """Returns the positions of a node and of all that need what it makes."""
    columns, tensors, indices = scope.columns, set(scope.columns.outputs[index]), {index}
    for later, node in enumerate(columns.nodes):
        if later not in indices and not tensors.isdisjoint(reads(node)):
            indices.add(later)
            tensors.update(columns.outputs[later])
    return indices


def cut(model: OnnxModel, inputs: Sequence[str], outputs: Sequence[str]) -> GraphPart | None:
    """Returns what lies between tensors; None where it needs others too, or holds what no plugin stands for."""
    scope = model.main
    inside = _inside(scope, inputs, outputs)
    if inside is None or any(scope.shape(name) is None or not scope.types.get(name) for name in inputs):
        return None
    nodes, constants = inside
    proto = onnx.ModelProto(ir_version=max(4, model.proto.ir_version))
    proto.opset_import.extend(model.proto.opset_import)
    graph = proto.graph
    graph.name = "part"
    graph.node.extend(scope.columns.nodes[index] for index in sorted(nodes))
    graph.initializer.extend(numpy_helper.from_array(model.array(tensor), tensor.name) for tensor in constants)
    graph.input.extend(
        helper.make_tensor_value_info(tensor, scope.types[tensor], scope.shape(tensor)) for tensor in inputs
    )
    graph.output.extend(helper.make_tensor_value_info(tensor, scope.types.get(tensor, 0), None) for tensor in outputs)
    return GraphPart(proto.SerializeToString(), tuple(inputs), tuple(outputs), frozenset(nodes))


def _inside(
    scope: Scope, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[set[int], list[onnx.TensorProto]] | None:
    """Returns the nodes between tensors, and the constants that these take."""
    nodes: set[int] = set()
    constants: list[onnx.TensorProto] = []
    queue, tensors = [name for name in outputs if name not in inputs], {*inputs, *outputs}
    for name in queue:
        index = scope.producers.get(name)
        tensor = scope.initializers.get(name) if index is None else None
        if tensor is not None and math.prod(tensor.dims) <= _MOST_CONSTANT:
            constants.append(tensor)
            continue
        if index is None or len(nodes) > _MOST_NODES or not _is_plain(scope.columns.nodes[index]):
            return None
        nodes.add(index)
        needed = dict.fromkeys(scope.columns.inputs[index])
        queue += [tensor for tensor in needed if tensor and tensor not in tensors]
        tensors.update(needed)
    return nodes, constants


def _is_plain(node: onnx.NodeProto) -> bool:
    """Whether a node may be in a part."""
    return node.op_type not in _OTHERS and node.domain in ONNX_DOMAINS and not any(map(bodies, node.attribute))
