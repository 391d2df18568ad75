"""Lets a decoder match its skip connections at every size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.passes.base import Pass, PassResult

if TYPE_CHECKING:
    from trtconv.shapes.skip_connections import Unmatched


class MatchSkipSize(Pass):
    """Gives a deconvolution the size of the skip that it meets: the largest output_padding, then a Slice.

    A U-Net that halves three times then takes every size, not multiples of 8 alone. Where the model ran before it
    computes the same; elsewhere it does what PyTorch's output_size=skip.shape[-2:] would. On request, since which
    sizes a network is good for is its owner's to say.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,w] x) => (float[1,2,h,w] y) <float[1,1,2,2] k = {1, 2, 3, 4}>
        { d = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)
          u = ConvTranspose <strides = [2,2]> (d, k)  y = Concat <axis = 1> (u, x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 1,h,w] x) => (float[1, 2,h,w] y)
        <float[1, 1, 2, 2] k = {1, 2, 3, 4}, int64[2] spatial = {2, 3}, int64[2] starts = {0, 0}, int64[2] axes =
            {2, 3}>
        {
          d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
          skip_shape = Shape (x)
          size = Gather <axis = 0> (skip_shape, spatial)
          full = ConvTranspose <strides = [2, 2], output_padding = [1, 1]> (d, k)
          u = Slice (full, starts, size, axes)
          y = Concat <axis = 1> (u, x)
        }
    """

    name = "match-skip-size"
    on_request = True
    frees_sizes = True

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return model.has({"ConvTranspose"}) and model.opset >= 10

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        # Loaded only here: it is on request, and needs all that knows of sizes.
        from trtconv.shapes.skip_connections import unmatched

        edits: list[Edit] = []
        skips: list[Skip] = []
        for _ in model.main.by_op.get("ConvTranspose", ()):
            layers = unmatched(model)
            # Sizes behind the first are not what they will be.
            if layers and layers[0].refusal:
                skips.append(Skip(self.name, layers[0].node.name, layers[0].refusal))
            if not layers or layers[0].refusal:
                break
            edits.append(Edit(self.name, layers[0].node.name, _match(model, layers[0])))
        return PassResult(tuple(edits), tuple(skips))


def _match(model: OnnxModel, layer: Unmatched) -> str:
    field = Field(model, model.main, {"ConvTranspose"})
    node = next(n for n in field.graph.nodes if field.index(n) == layer.index)
    output, name = node.outputs[0], node.name or "ConvTranspose"
    full = field.variable(f"{name}.full")
    node.outputs = [full]
    node.attrs["output_padding"] = list(layer.output_padding)
    axes = np.arange(2, 2 + len(layer.output_padding), dtype=np.int64)
    shape = field.node("Shape", f"{name}/Shape", [field.tensor(layer.skip)], f"{name}.skip_shape")
    size = _first_axes(field, name, shape.outputs[0], axes)
    starts = field.constant(f"{name}.starts", np.zeros(len(axes), np.int64))
    ends = size.outputs[0]
    sliced = field.node("Slice", f"{name}/Slice", [full, starts, ends, field.constant(f"{name}.axes", axes)], output)
    field.replace(node, [shape, size, node, sliced])
    field.close()
    return f"output_padding {list(layer.output_padding)} and a Slice to the size of {layer.skip} ({layer.join.label})"


def _first_axes(field: Field, name: str, shape: gs.Tensor, axes: NDArray[np.int64]) -> gs.Node:
    return field.node(
        "Gather", f"{name}/Gather", [shape, field.constant(f"{name}.spatial", axes)], f"{name}.size", axis=0
    )
