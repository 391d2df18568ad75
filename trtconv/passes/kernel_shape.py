"""Writes the kernel size of convolutions whose weight or bias is no initializer."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.settled import first_computed
from trtconv.passes.base import NodePass, Refusal


class WriteKernelShape(NodePass):
    """Writes the kernel_shape of Conv and ConvTranspose nodes whose weight or bias is computed or dequantised.

    Without the attribute the parser takes the size from the weight only where both are initializers; else it refuses
    the node.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y) <int8[2,3,1,1] w = {1,2,3,4,5,6}, float s = {0.1}, int8 z = {0}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 4, 4] x) => (float[1, 3,p,q] y)
        <int8[2, 3, 1, 1] w = {1, 2, 3, 4, 5, 6}, float s = {0.1}, int8 z = {0}>
        {
          d = DequantizeLinear (w, s, z)
          y = ConvTranspose <kernel_shape = [1, 1]> (x, d)
        }
    """

    name = "write-kernel-shape"
    fixes = ("TC110",)
    ops = frozenset({"Conv", "ConvTranspose"})
    looks_around = False

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        # RTX infers it; which version of the full TensorRT began to is not known, and writing it is harmless.
        return target.family != "rtx" and super().may_act(model, target)

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        return bool(first_computed(scope, index)) and attribute(scope.columns.nodes[index], "kernel_shape") is None

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        if "kernel_shape" in node.attrs or not first_computed(field.scope, field.index(node)):
            return None
        shape = field.shape(node.inputs[1])
        sizes = [] if shape is None else [size for size in shape[2:] if size is not None]
        if shape is None or not sizes or len(sizes) != len(shape) - 2:
            return Refusal(f"the shape of its weight {node.inputs[1].name!r} is not known")
        node.attrs["kernel_shape"] = sizes
        field.replace(node, [node])
        return f"kernel_shape {sizes} written"
