"""int8 constants other than the weights of int8 convolutions, for a TensorRT that takes no such constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.graph.quantization import dequantize, quantize_symmetric
from trtconv.graph.scope import Scope
from trtconv.graph.views import Linear
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.quantized import MOVERS, has_linear, read_linear, read_weights

_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_PRODUCTS = frozenset({"Gemm", "MatMul"})
_RESHAPES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that keep every value of a weight."""
_BETWEEN = MOVERS | {"Relu"}
"""Operators that an int8 layer may have between itself and the DequantizeLinear in front."""


class WriteWeightQuantizers(NodePass):
    """Writes int8 constants that no int8 convolution takes as its weight in float: the same numbers.

    TensorRT 8 takes int8 constants as weights of convolutions. Others it refuses in large networks
    ("params.weights.type() != DataType::kINT8"), and a small one was off by 0.8 % that is exact as written here
    (bench/results/gpu-int8-8.6.json). Weights of products, of convolutions in float, and weights that are transposed
    or reshaped become float ones behind a QuantizeLinear, which gives the same codes; biases, scales of
    normalisations, embeddings and whatever else is quantised become float initializers, also where a QuantizeLinear
    quantises them.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3,2] x) => (float[3,2] y)
          <int8[2,2] w = {1, 2, 3, 4}, int8[2] b = {3, 5}, float s = {0.5}, int8 z = {0}>
        { d = DequantizeLinear (w, s, z)  e = DequantizeLinear (b, s, z)  m = MatMul (x, d)  y = Add (m, e) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3,2] x) => (float[3,2] y)
          <float[2,2] real = {0.5, 1, 1.5, 2}, float[2] e = {1.5, 2.5}, float s = {0.5}, int8 z = {0}>
        { q = QuantizeLinear (real, s, z)  d = DequantizeLinear (q, s, z)  m = MatMul (x, d)  y = Add (m, e) }
    """

    name = "write-weight-quantizers"
    ops = frozenset({"DequantizeLinear"})

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return target.before(9) and has_linear(model) and super().may_act(model, target)

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        weight = scope.columns.inputs[index][0]
        quantizer = scope.producer(weight)
        return scope.constant(weight if quantizer is None else quantizer.input[0]) is not None

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        linear = Linear(field.scope, field.index(node))
        values = field.values(node.inputs[0])
        if values is None:
            return _fold_constant(field, node)
        if values.dtype != np.int8 or linear.problem or linear.scale is None or isinstance(linear.channels, str):
            return None
        if linear.zero_point is None or linear.zero_point.any():
            # normalize-quantizers and others see to that.
            return None
        readers = _readers(field.scope, node.outputs[0].name)
        if readers and all(reader.in_int8 for reader in readers):
            return None
        axis = linear.channels[0]
        real = dequantize(values, linear.scale, linear.zero_point, axis)
        if not np.isfinite(real).all():
            return Refusal("what it means is not finite")
        same = np.array_equal(quantize_symmetric(real, linear.scale, axis), values)
        if not same or not any(reader.is_weight for reader in readers):
            field.fold_into(node, real)
            return f"int8 {list(values.shape)} written as a float constant"
        floats = _give_in_float(field, node, real)
        if not all(reader.in_int8 for reader in readers if all(reader.node is not other for other in floats)):
            _quantise(field, node, real)
            return f"int8 {list(values.shape)} written as a float constant and its QuantizeLinear"
        return f"int8 {list(values.shape)} written as a float constant where it is no weight"


@frozen
class _ConstantReader:
    """What reads a dequantised constant.

    Args:
        scope: The graph that it is in.
        node: The node.
        name: The constant.
    """

    scope: Scope
    node: onnx.NodeProto
    name: str

    @property
    def is_weight(self) -> bool:
        """Whether the constant is its weight, or that of a layer behind it."""
        if self.node.op_type in _RESHAPES:
            return any(reader.is_weight for reader in _readers(self.scope, self.node.output[0]))
        if self.node.op_type in _PRODUCTS:
            return self.name in self.node.input[:2]
        return self._convolves

    @property
    def in_int8(self) -> bool:
        """Whether it is a convolution that runs in int8 with the constant as its weight."""
        if not self._convolves:
            return False
        before = self.scope.producer(self.node.input[0])
        while before is not None and before.op_type in _BETWEEN:
            before = self.scope.producer(before.input[0])
        return before is not None and before.op_type == "DequantizeLinear"

    @property
    def _convolves(self) -> bool:
        return self.node.op_type in _CONVOLUTIONS and self.node.input[1] == self.name


def _readers(scope: Scope, name: str) -> list[_ConstantReader]:
    """Returns the nodes that read a tensor, also in inner graphs."""
    views = list(scope.seen_from(name))
    return [_ConstantReader(view, node, name) for view in views for node in view.consumers.get(name, ())]


def _fold_constant(field: Field, node: gs.Node) -> str | None:
    """Folds a float constant, its QuantizeLinear and a DequantizeLinear that is no weight's."""
    reader = read_linear(field, node)
    if isinstance(reader, str) or any(use.is_weight for use in _readers(field.scope, node.outputs[0].name)):
        return None
    weights = read_weights(field, reader)
    if isinstance(weights, str) or not np.isfinite(weights.computed).all():
        return None
    field.fold_into(node, weights.computed)
    return f"constant {list(weights.computed.shape)} and its quantisers written as a float constant"


def _give_in_float(field: Field, node: gs.Node, real: NDArray[Any]) -> list[onnx.NodeProto]:
    """Gives a float constant to those that read a dequantised one not as their weight; returns them."""
    (output,) = node.outputs
    pairs = []
    for reader in {id(reader): reader for reader in output.outputs}.values():
        proto = field.scope.columns.nodes[field.index(reader)]
        if not _ConstantReader(field.scope, proto, output.name).is_weight:
            pairs.append((reader, proto))
    if pairs:
        constant = field.constant(f"{output.name}.real", real)
        for reader, _ in pairs:
            reader.inputs = [constant if tensor is output else tensor for tensor in reader.inputs]
            field.replace(reader, [reader])
    return [proto for _, proto in pairs]


def _quantise(field: Field, node: gs.Node, real: NDArray[Any]) -> None:
    """Puts a float constant and a QuantizeLinear in front of a DequantizeLinear, in the place of its codes."""
    name = node.inputs[0].name
    codes = field.variable(f"{name}.codes")
    inputs = [field.constant(f"{name}.real", real), *node.inputs[1:]]
    quantizer = field.node("QuantizeLinear", f"{node.name or name}.quantize", inputs, codes)
    quantizer.attrs.update(node.attrs)
    node.inputs[0] = codes
    field.replace(node, [quantizer, node])
