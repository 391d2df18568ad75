"""Folds BatchNormalization into the scales of a quantised layer's weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.graph.quantization import along
from trtconv.graph.scope import Scope
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.fold_batch_norm import factors, norm_obstacle

_OUTPUTS = {"Conv": 0, "ConvTranspose": 1}
"""Layers to the axis of their weight that the outputs lie on."""
_PER_CHANNEL_OPSET = 13


@frozen
class _Codes:
    """A weight as it is quantised.

    Args:
        values: Its int8.
        scale: Their scale: one, or one for each output.
    """

    values: NDArray[Any]
    scale: NDArray[Any]


class FoldQuantizedNorm(NodePass):
    """Folds BatchNormalization behind a quantised Conv or ConvTranspose into the scales of its weight.

    The codes stay as they are, and change their sign where a factor is negative; so the layer runs in int8 with nothing
    behind it.

    Before:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[1,1,4] x) => (float[1,1,4] y)
        <int8[1,1,1] w = {5}, float[1] q = {0.5}, float[1] s = {-2}, float[1] b = {1}, float[1] m = {0},
        float[1] v = {1}>
        {
          d = DequantizeLinear <axis = 0> (w, q)  c = Conv (x, d)
          y = BatchNormalization <epsilon = 0.0> (c, s, b, m, v)
        }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[1,1,4] x) => (float[1,1,4] y) <int8[1,1,1] w = {-5}, float[1] q = {1}, float[1] b = {1}>
        { d = DequantizeLinear <axis = 0> (w, q)  y = Conv (x, d, b) }
    """

    name = "fold-quantized-norm"
    ops = frozenset({"BatchNormalization"})

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        layer = scope.producer(scope.columns.inputs[index][0])
        if layer is None or layer.op_type not in _OUTPUTS or len(layer.input) < 2:
            return False
        weight = scope.producer(layer.input[1])
        return weight is not None and weight.op_type == "DequantizeLinear"

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        layer = node.inputs[0].inputs[0]
        why_not = norm_obstacle(field, node, layer)
        if why_not:
            return Refusal(why_not)
        codes = _codes(field, layer)
        if isinstance(codes, str):
            return Refusal(codes)
        bias = _bias(field, layer)
        terms = [field.values(tensor) for tensor in node.inputs[1:5]]
        if isinstance(bias, str) or any(term is None for term in terms):
            return Refusal("its weights, or those of the layer in front, are computed at run time")
        scale, shift = factors([np.asarray(term) for term in terms], float(node.attrs.get("epsilon", 1e-5)))
        folded = _folded(codes, scale, _OUTPUTS[layer.op])
        if isinstance(folded, str):
            return Refusal(folded)
        name = label(layer)
        axis = _OUTPUTS[layer.op]
        values, scales = (
            field.constant(f"{name}.{part}", array) for part, array in zip(("codes", "scales"), folded, strict=True)
        )
        weight = field.node("DequantizeLinear", f"{name}/weight", [values, scales], f"{name}.weight", axis=axis)
        shifted = (shift + scale * bias).astype(codes.scale.dtype)
        layer.inputs = [layer.inputs[0], weight.outputs[0], field.constant(f"{name}.bias", shifted)]
        field.take_over(node, layer, [weight, layer])
        return f"its factors of {scale.size} channels are in the scales of {layer.op} {name}"


def _codes(field: Field, layer: gs.Node) -> _Codes | str:
    """Returns the quantised weight of a layer, or why its scales cannot take a factor for each output."""
    if layer.op == "ConvTranspose" and int(layer.attrs.get("group", 1)) != 1:
        return "the outputs of a deconvolution in groups share scales"
    if field.model.opset < _PER_CHANNEL_OPSET:
        return f"opset {field.model.opset} has no scales by channel"
    constant = _read(field.scope, layer.inputs[1].name)
    if constant is None:
        return "the weight of the layer in front, or its scale, is computed at run time"
    values, scale, attributes = constant
    if values.dtype != np.int8 or attributes.get("block_size"):
        return "the weight of the layer in front is not int8"
    if scale.size > 1 and attributes.get("axis", 1) % values.ndim != _OUTPUTS[layer.op]:
        return "the scales of the layer in front are not those of its outputs"
    return _Codes(values, scale)


def _read(scope: Scope, name: str) -> tuple[NDArray[Any], NDArray[Any], dict[str, int]] | None:
    """Returns the codes, scale and attributes of a dequantised constant around 0; None for anything else."""
    node = scope.producer(name)
    if node is None or node.op_type != "DequantizeLinear":
        return None
    values, scale = (scope.values(source) for source in node.input[:2])
    point = scope.values(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(1)
    if values is None or scale is None or point is None or np.any(point):
        return None
    return values, scale, {attribute.name: attribute.i for attribute in node.attribute}


def _folded(codes: _Codes, factor: NDArray[np.float64], axis: int) -> tuple[NDArray[Any], NDArray[Any]] | str:
    """Returns the codes and scales that are so many times as large, or why there are none."""
    if codes.values.shape[axis] != factor.size:
        return "it has another number of channels than the layer in front"
    signs = along(np.sign(factor), axis, codes.values.ndim)
    values = codes.values.astype(np.int16) * signs.astype(np.int16)
    if values.max(initial=0) > np.iinfo(np.int8).max:
        return "a code of -128 has no opposite"
    # Where the factor is 0 the codes are, and any scale will do.
    scales = codes.scale.reshape(-1).astype(np.float64) * np.where(factor == 0, 1, np.abs(factor))
    return values.astype(np.int8), scales.astype(codes.scale.dtype)


def _bias(field: Field, layer: gs.Node) -> NDArray[np.float64] | float | str:
    """Returns the bias of a layer in units of its output, or that it is computed."""
    if len(layer.inputs) < 3 or layer.inputs[2].is_empty():
        return 0.0
    tensor = layer.inputs[2]
    values = field.values(tensor)
    if values is not None:
        return np.asarray(values.astype(np.float64))
    constant = _read(field.scope, tensor.name)
    return "computed" if constant is None else np.asarray(constant[0].astype(np.float64) * constant[1].reshape(-1))
