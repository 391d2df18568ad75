"""Folds BatchNormalization into the convolution in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.target import Target
from trtconv.graph.channels import times_outputs
from trtconv.graph.editor import Field, label
from trtconv.passes.base import NodePass, Refusal

_LAYERS = frozenset({"Conv", "ConvTranspose"})


class FoldBatchNorm(NodePass):
    """Folds BatchNormalization into the Conv or ConvTranspose in front of it. Runs when asked, and for `quantize`.

    TensorRT fuses the two by itself, but not across the quantisers of a weight: scales have to be taken of the weights
    that are multiplied with the activations in the end.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,4] x) => (float[1,1,4] y)
        <float[1,1,1] w = {2}, float[1] s = {1.5}, float[1] b = {0.5}, float[1] m = {0.25}, float[1] v = {4}>
        { c = Conv (x, w)  y = BatchNormalization (c, s, b, m, v) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 1, 4] x) => (float[1, 1, 4] y)
        <float[1, 1, 1] weight = {1.4999981}, float[1] bias = {0.31250024}>
        {
          y = Conv (x, weight, bias)
        }
    """

    name = "fold-batch-norm"
    on_request = True
    ops = frozenset({"BatchNormalization"})

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        layer = node.inputs[0].inputs[0] if node.inputs[0].inputs else None
        if layer is None or layer.op not in _LAYERS:
            return None
        why_not = norm_obstacle(field, node, layer)
        if why_not:
            return Refusal(why_not)
        weight, bias = field.values(layer.inputs[1]), _bias(field, layer)
        terms = [field.values(tensor) for tensor in node.inputs[1:5]]
        if weight is None or isinstance(bias, str) or any(term is None for term in terms):
            return Refusal("its weights, or those of the layer in front, are computed at run time")
        scale, shift = factors([np.asarray(term) for term in terms], float(node.attrs.get("epsilon", 1e-5)))
        name = label(layer)
        folded = field.constant(
            f"{name}.weight", times_outputs(weight, scale, layer.op, int(layer.attrs.get("group", 1)))
        )
        shifted = (shift + scale * (0.0 if bias is None else bias.astype(np.float64))).astype(weight.dtype)
        layer.inputs = [layer.inputs[0], folded, field.constant(f"{name}.bias", shifted)]
        field.take_over(node, layer, [layer])
        return f"{layer.op} {name} takes over its factors of {scale.size} channels"


def factors(terms: Sequence[NDArray[Any]], epsilon: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns what a BatchNormalization multiplies each channel with, and what it then adds, in float64.

    Args:
        terms: Its scale, bias, mean and variance.
        epsilon: What it adds to the variance.
    """
    gamma, beta, mean, variance = (term.astype(np.float64) for term in terms)
    scale = gamma / np.sqrt(variance + epsilon)
    return scale, beta - mean * scale


def norm_obstacle(field: Field, node: gs.Node, layer: gs.Node) -> str:
    """Returns why a BatchNormalization cannot go into the layer in front of it; an empty text where it can."""
    if node.attrs.get("training_mode") or any(not tensor.is_empty() for tensor in node.outputs[1:]):
        return "it takes its mean and variance from the batch"
    if len(layer.outputs[0].outputs) > 1 or field.escapes(layer.outputs[0]):
        return f"the result of {layer.op} {layer.name!r} is used elsewhere too"
    return ""


def _bias(field: Field, layer: gs.Node) -> NDArray[Any] | str | None:
    """Returns the bias of a layer, None where it has none, or a text where it is computed."""
    if len(layer.inputs) < 3 or layer.inputs[2].is_empty():
        return None
    values = field.values(layer.inputs[2])
    return "computed" if values is None else values
