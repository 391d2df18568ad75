"""How much ONNX's inference writes down where it follows values: every element of a vector that is computed on."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx

from trtconv.graph.attributes import attribute
from trtconv.graph.nodes import Columns
from trtconv.graph.walk import constant_of

_MOST_WRITTEN = 1 << 20
"""Elements; each takes some 40 bytes."""
_RANK = 8.0


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ANY_LENGTH = frozenset(("Reshape", "Expand", "ConstantOfShape", "Tile", "Range"))
"""Operators that make vectors as long as their last input says."""
_ARITHMETIC = frozenset(("Add", "Sub", "Mul"))
_PASSED_ON = frozenset(("Slice", "Gather", "Squeeze", "Unsqueeze", "Cast", "Identity"))
_FOLLOWED = _ARITHMETIC | _PASSED_ON | {"Shape", "Concat"}
"""Operators whose values inference follows; a Concat of what a Concat made doubles them."""
_LOWERING = frozenset(("Gather", "Squeeze"))
"""Operators among these that may make a vector of something else."""
_BROADCASTING = _names(
    """
    Div Pow Max Min Sum Mean Mod Where PRelu And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual
    """
)
_LIKE_THE_FIRST = _names(
    """
    Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Clip Cos Cosh CumSum Dropout Elu Erf Exp Floor Gelu
    HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log LogSoftmax Mish Neg Not Reciprocal Relu Round Selu Sigmoid
    Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Transpose Split TopK
    QuantizeLinear DequantizeLinear BatchNormalization InstanceNormalization LayerNormalization
    GroupNormalization LRN MeanVarianceNormalization LpNormalization Conv ConvTranspose ConvInteger
    QLinearConv Gemm Flatten AveragePool MaxPool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool
    DepthToSpace SpaceToDepth GridSample
    """
)
"""Operators that make a vector of a vector alone, as long as that or shorter."""
_LONGER = frozenset(("Pad", "Resize", "Upsample"))
"""Operators that make a vector of a vector alone, and perhaps a longer one."""
_OF_VECTORS = _LIKE_THE_FIRST | _BROADCASTING | _ARITHMETIC | _LONGER
"""Operators that make no vector where they read none; nearly all nodes of networks of images."""
_REDUCTIONS = ("Reduce", "Arg")
_NO_VECTOR = 0.0


def data_can_be_propagated(
    graph: onnx.GraphProto, model: onnx.ModelProto | bytes, columns: Columns | None = None
) -> bool:
    """Whether ONNX's inference may follow the values of a model.

    Args:
        graph: Its main graph.
        model: The model.
        columns: The nodes of the main graph, where they have been read.
    """
    nodes = columns or Columns(graph.node)
    count = _literal_elements(graph, nodes, None)
    if math.isinf(count):
        try:
            tensors = onnx.shape_inference.infer_shapes(model).graph.value_info
        # Whatever inference raises over a stranger's model means one thing here: not known.
        except Exception:
            return False
        count = _literal_elements(graph, nodes, {tensor.name: _length(tensor) for tensor in tensors})
    return count <= _MOST_WRITTEN


def _literal_elements(graph: onnx.GraphProto, columns: Columns, inference: Mapping[str, float] | None) -> float:
    """Returns how many elements are written down; infinity where that depends on lengths that are not known.

    Args:
        graph: The graph.
        columns: Its nodes.
        inference: Tensors to their lengths, as inference without values tells them; None: it was not asked.
    """
    if _FOLLOWED.isdisjoint(columns.ops):
        return 0.0
    lengths = {tensor.name: _size(tensor) for tensor in graph.initializer}
    lengths |= {value.name: _length(value) for value in graph.input if value.name not in lengths}
    lengths = {name: length for name, length in lengths.items() if length}
    floats = {tensor.name: float(tensor.dims[0]) for tensor in graph.initializer if _is_float_vector(tensor)}
    # Several numbers are the shape of something that is no vector.
    shapes = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 1 and tensor.dims[0] > 1}
    scalars = {tensor.name for tensor in graph.initializer if not tensor.dims} | {
        value.name
        for value in graph.input
        if value.type.tensor_type.HasField("shape") and not value.type.tensor_type.shape.dim
    }
    count = 0.0
    for node, op, inputs, outputs in zip(columns.nodes, columns.ops, columns.inputs, columns.outputs, strict=True):
        first = inputs if op in _ARITHMETIC or op in _BROADCASTING else inputs[:1]
        reads_vectors = not lengths.keys().isdisjoint(inputs) or not floats.keys().isdisjoint(first)
        if op in _OF_VECTORS and not reads_vectors:
            continue
        constant = constant_of(node)
        if constant is not None:
            length = _size(constant)
            shapes.update(outputs if list(constant.dims) not in ([], [1]) else ())
            floats.update(dict.fromkeys(outputs, float(constant.dims[0])) if _is_float_vector(constant) else {})
            scalars.update(outputs if not constant.dims else ())
        else:
            parts = [lengths.get(name, _NO_VECTOR) for name in inputs]
            length = (
                _NO_VECTOR
                if op in _ANY_LENGTH and not shapes.isdisjoint(inputs[-1:])
                else _length_after(node, _with_floats(op, inputs, parts, floats, scalars))
            )
            if math.isinf(length) and inference is not None:
                length = max((inference.get(name, _NO_VECTOR) for name in outputs), default=_NO_VECTOR)
            # Even where nothing comes of it, inference writes down what an operator reads.
            count += max([length, *parts]) if op in _FOLLOWED else 0
        if length:
            lengths.update(dict.fromkeys(outputs, length))
    return count


def _with_floats(
    op: str, inputs: Sequence[str], parts: Sequence[float], floats: Mapping[str, float], scalars: Collection[str]
) -> Sequence[float]:
    """Returns the lengths of the vectors that a node reads, of float constants too where it makes a vector of them.

    Args:
        inputs: What the node reads.
        parts: The lengths without those of float constants, of which inference writes down what is computed alone.
        floats: Those of float constants.
        scalars: What has no axes, and is as long as one element.
    """
    if op in _LOWERING or floats.keys().isdisjoint(inputs):
        return parts
    lengths = [
        part or floats.get(name, 1.0 if name in scalars else _NO_VECTOR)
        for name, part in zip(inputs, parts, strict=True)
    ]
    # A bias beside an image makes no vector of it.
    alone = all(length for name, length in zip(inputs, lengths, strict=True) if name)
    return lengths if alone or op in _LIKE_THE_FIRST or op in _LONGER else parts


def _length_after(node: onnx.NodeProto, parts: Sequence[float]) -> float:
    """Returns how long a vector a node makes of vectors so long; infinity where that is not known."""
    op = node.op_type
    if op == "Shape":
        return _RANK
    if op == "Concat":
        return sum(parts)
    longest = max(parts, default=_NO_VECTOR)
    if op in _ARITHMETIC:
        return longest if all(parts) else _NO_VECTOR
    if op in _BROADCASTING:
        return longest
    first = max(parts[:1], default=_NO_VECTOR)
    is_same = op.startswith(_REDUCTIONS) and attribute(node, "keepdims", 1) == 1
    if is_same or op in _LIKE_THE_FIRST or (op in _LONGER and not first):
        return first
    passed_on = op in _PASSED_ON and (op not in _LOWERING or first)
    return longest if passed_on else math.inf


def _size(tensor: onnx.TensorProto) -> float:
    # Of constants inference takes integers alone.
    whole = tensor.data_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
    return float(math.prod(tensor.dims)) if whole and len(tensor.dims) < 2 else _NO_VECTOR


def _is_float_vector(tensor: onnx.TensorProto) -> bool:
    dims = tensor.dims
    return len(dims) == 1 and dims[0] > 0 and not _size(tensor)


def _length(value: onnx.ValueInfoProto) -> float:
    dims: Sequence[Any] = value.type.tensor_type.shape.dim
    return float(max(1, dims[0].dim_value)) if len(dims) == 1 else _NO_VECTOR
