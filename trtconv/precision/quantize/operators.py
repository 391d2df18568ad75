"""The operators whose weights are quantised: where their channels, biases and multiply-adds are."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx

from trtconv.core.frozen import frozen
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope

CONVOLUTIONS = {"Conv": 0, "ConvTranspose": 1}
"""Convolutions, and the axis of the output channels of their weights."""
PRODUCTS = ("Gemm", "MatMul")
"""Matrix products, which are quantised where the second matrix is constant, and others where that is asked for."""
RECURRENT = ("GRU", "LSTM", "RNN")
WEIGHTED = (*CONVOLUTIONS, *PRODUCTS, "ConvInteger", "DeformConv", *RECURRENT)
"""Layers whose multiply-adds are counted and that a report names."""

Shape = tuple[int, ...]


def weight_axis(node: onnx.NodeProto, rank: int) -> int:
    """Returns the axis of a layer's output channels in its weight, which has `rank` axes."""
    if node.op_type in CONVOLUTIONS:
        return CONVOLUTIONS[node.op_type]
    return 0 if attribute(node, "transB") else rank - 1


def channel_axis(node: onnx.NodeProto) -> int:
    """Returns the axis of the channels in a layer's result: the last one of a product, else the second."""
    return -1 if node.op_type in PRODUCTS else 1


@frozen
class Bias:
    """Where a layer's bias is added.

    Args:
        tensor: The result with the bias.
        slot: Which input the bias is, or would be, of the node that adds it: the layer, or an Add behind a MatMul.
        axis: Axis of the channels in the tensor.
    """

    tensor: str
    slot: int
    axis: int


def bias_of(scope: Scope, index: int) -> Bias | None:
    """Returns where the bias of a layer is; None where it has none that has one value for each channel."""
    node = scope.columns.nodes[index]
    if node.op_type == "MatMul":
        return _added(scope, node)
    usable = node.op_type != "Gemm" or _one_by_channel(scope, node)
    return Bias(node.output[0], 2, channel_axis(node)) if usable else None


def _added(scope: Scope, node: onnx.NodeProto) -> Bias | None:
    users = scope.consumers.get(node.output[0], ())
    if len(users) != 1 or users[0].op_type != "Add" or scope.uses_of(node.output[0]) != 1:
        return None
    slot = 1 - list(users[0].input).index(node.output[0])
    # What is added to a product of two computed matrices is a mask.
    weight, bias = scope.constant(node.input[1]), scope.constant(users[0].input[slot])
    if weight is None or bias is None or not _fits(tuple(bias.dims), weight.dims[-1]):
        return None
    return Bias(users[0].output[0], slot, -1)


def _one_by_channel(scope: Scope, node: onnx.NodeProto) -> bool:
    if len(node.input) < 3 or not node.input[2]:
        return True
    weight, bias = scope.shape(node.input[1]), scope.constant(node.input[2])
    if weight is None or bias is None or attribute(node, "beta", 1.0) != 1:
        return False
    return _fits(tuple(bias.dims), weight[weight_axis(node, len(weight))])


def _fits(bias: Shape, channels: int | None) -> bool:
    return bool(bias) and bias[-1] == channels and math.prod(bias) == channels


def multiply_adds(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> int:
    """Returns how many multiply-adds a layer takes; 0 where a shape is missing.

    Args:
        node: One of `WEIGHTED`.
        shapes: Tensor to its shape in one run; those of inputs and of the first output matter.
    """
    shape = shapes.get(node.input[0])
    weight, result = shapes.get(node.input[1]), shapes.get(node.output[0]) if node.output else None
    if not shape or not weight:
        return 0
    if node.op_type in RECURRENT:
        recurrence = shapes.get(node.input[2], ())
        return math.prod(shape[:-1]) * (math.prod(weight) + math.prod(recurrence))
    if node.op_type == "ConvTranspose":
        return math.prod(shape) * math.prod(weight[1:])
    if node.op_type in PRODUCTS:
        inner = shape[-2] if attribute(node, "transA") else shape[-1]
        return math.prod(result or ()) * inner if result is not None else 0
    return math.prod(result) * math.prod(weight[1:]) if result is not None else 0
