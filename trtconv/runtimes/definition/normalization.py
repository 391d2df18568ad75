"""InstanceNormalization, LayerNormalization, LpNormalization, LRN and MeanVarianceNormalization in float64.

ONNX Runtime takes the variance as the mean of squares less the square of the mean, in float32: of values far from zero,
or of equal ones, nothing is left of it. The definition takes the mean of squares of what is left of the mean.
LpNormalization of opset 22 is missing from older versions, and ONNX's own implementation sums without magnitudes.
The sums of LRN are taken by adding at one end and subtracting at the other: of small values beside large ones nothing
is left.

Source: ONNX operators InstanceNormalization, LayerNormalization, LpNormalization, LRN and MeanVarianceNormalization.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing

_TYPED_CAST = 9
"""Opset from which on Cast takes types as numbers in all ONNX Runtimes."""
_AXES_AS_INPUT = 18
_EPSILON = 1e-5
_EPSILON_OF_DEVIATION = 1e-9
"""Of MeanVarianceNormalization, which adds it to the deviation."""
_LRN_ALPHA, _LRN_BETA = 1e-4, 0.75
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def write_instance_normalization(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes an InstanceNormalization of float32 out."""
    node = scope.columns.nodes[index]
    if not _is_written(scope, node, writing):
        return False
    x, scale, bias = (
        _wide(writing, writing.reshape(name, shape))
        for name, shape in zip(node.input, ([0, 0, -1], [1, -1, 1], [1, -1, 1]), strict=True)
    )
    normal = _normal(writing, x, 2, attribute(node, "epsilon", _EPSILON))
    scaled = writing.compute("Add", writing.compute("Mul", normal, scale), bias)
    flat = writing.compute("Cast", scaled, to=onnx.TensorProto.FLOAT)
    writing.compute("Reshape", flat, writing.compute("Shape", node.input[0]))
    writing.finish()
    return True


def write_layer_normalization(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a LayerNormalization of float32 out, unless its mean and deviation are wanted too."""
    node = scope.columns.nodes[index]
    if not _is_written(scope, node, writing) or any(node.output[1:]):
        return False
    x = _wide(writing, writing.compute("Flatten", node.input[0], axis=attribute(node, "axis", -1)))
    normal = _normal(writing, x, 1, attribute(node, "epsilon", _EPSILON))
    result = writing.compute("Reshape", normal, writing.compute("Shape", node.input[0]))
    for op, name in zip(("Mul", "Add"), node.input[1:], strict=False):
        result = writing.compute(op, result, _wide(writing, name)) if name else result
    writing.compute("Cast", result, to=onnx.TensorProto.FLOAT)
    writing.finish()
    return True


def write_lp_normalization(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes an LpNormalization out; where the norm is 0 the result is 0, as all elements are."""
    node = scope.columns.nodes[index]
    kind = scope.types.get(node.input[0], 0)
    if writing.opset < _TYPED_CAST or kind not in _FLOATS:
        return False
    x, axis = _wide(writing, node.input[0]), attribute(node, "axis", -1)
    norm = _reduced(writing, f"ReduceL{attribute(node, 'p', 2)}", x, [axis])
    none = writing.compute("Not", writing.compute("Greater", norm, writing.number(0.0)))
    writing.compute("Cast", writing.compute("Where", none, x, writing.compute("Div", x, norm)), to=kind)
    writing.finish()
    return True


def write_local_response_normalization(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes an LRN out: its window is a sum of squares that are shifted along the channels."""
    node = scope.columns.nodes[index]
    kind = scope.types.get(node.input[0], 0)
    if writing.opset < _TYPED_CAST or kind not in _FLOATS:
        return False
    size = attribute(node, "size", 1)
    x = _wide(writing, writing.reshape(node.input[0], [0, 0, -1]))
    squares = writing.compute("Mul", x, x)
    padded = writing.pad(squares, [0, (size - 1) // 2, 0], [0, size // 2, 0])
    shifted = [writing.pad(padded, [0, -i, 0], [0, i + 1 - size, 0]) for i in range(size)]
    share = writing.number(attribute(node, "alpha", _LRN_ALPHA) / size)
    scaled = writing.compute("Mul", writing.compute("Sum", *shifted), share)
    base = writing.compute("Add", scaled, writing.number(attribute(node, "bias", 1.0)))
    divisor = writing.compute("Pow", base, writing.number(attribute(node, "beta", _LRN_BETA)))
    flat = writing.compute("Cast", writing.compute("Div", x, divisor), to=kind)
    writing.compute("Reshape", flat, writing.compute("Shape", node.input[0]))
    writing.finish()
    return True


def write_mean_variance_normalization(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a MeanVarianceNormalization out."""
    node = scope.columns.nodes[index]
    kind = scope.types.get(node.input[0], 0)
    if writing.opset < _TYPED_CAST or kind not in _FLOATS:
        return False
    offset, variance = _moments(writing, _wide(writing, node.input[0]), attribute(node, "axes", (0, 2, 3)))
    deviation = writing.compute("Add", writing.compute("Sqrt", variance), writing.number(_EPSILON_OF_DEVIATION))
    writing.compute("Cast", writing.compute("Div", offset, deviation), to=kind)
    writing.finish()
    return True


def _is_written(scope: Scope, node: onnx.NodeProto, writing: Writing) -> bool:
    # The scale is of the same type, and a constant as a rule, which needs no inference.
    return writing.opset >= _TYPED_CAST and len(node.input) > 1 and scope.dtype(node.input[1]) == "float32"


def _wide(writing: Writing, tensor: str) -> str:
    return writing.compute("Cast", tensor, to=onnx.TensorProto.DOUBLE)


def _normal(writing: Writing, tensor: str, axis: int, epsilon: float) -> str:
    """Takes the mean along an axis off, and divides by the deviation."""
    offset, variance = _moments(writing, tensor, [axis])
    deviation = writing.compute("Sqrt", writing.compute("Add", variance, writing.number(epsilon)))
    return writing.compute("Div", offset, deviation)


def _moments(writing: Writing, tensor: str, axes: Sequence[int]) -> tuple[str, str]:
    """Returns a tensor less its mean, and its variance."""
    offset = writing.compute("Sub", tensor, _reduced(writing, "ReduceMean", tensor, axes))
    return offset, _reduced(writing, "ReduceMean", writing.compute("Mul", offset, offset), axes)


def _reduced(writing: Writing, op: str, tensor: str, axes: Sequence[int]) -> str:
    if writing.opset < _AXES_AS_INPUT:
        return writing.compute(op, tensor, axes=list(axes), keepdims=1)
    return writing.compute(op, tensor, writing.constant(axes), keepdims=1)
