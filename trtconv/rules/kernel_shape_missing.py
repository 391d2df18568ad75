"""TC110."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.graph.settled import first_computed
from trtconv.rules.base import ModelView, Rule


class KernelShapeMissing(Rule):
    """A convolution with a quantised or computed weight or bias does not say its kernel size.

    What it checks:
        The kernel_shape attribute of Conv and ConvTranspose nodes whose weight or bias is no initializer, for TensorRT
        8.
    Why TensorRT cares:
        The parser takes the size from the weight where both are initializers. Where one is computed, as behind a
        DequantizeLinear, it does not, and refuses the node: "The input tensor shape misaligns with the input kernel
        shape". ONNX makes the attribute optional.
    Versions:
        Run on 8.6. RTX 1.7 accepts such nodes.
    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y) <int8[2,3,1,1] w = {1,2,3,4,5,6}, float s = {0.1}, int8 z = {0}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y) <int8[2,3,1,1] w = {1,2,3,4,5,6}, float s = {0.1}, int8 z = {0}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose <kernel_shape = [1,1]> (x, d) }
    Fix:
        trtconv build and rewrite write it.
    Source:
        Measured on 8.6; onnx-tensorrt, importer of Conv.
    """

    code = "TC110"
    name = "kernel-shape-missing"
    fix = "Let trtconv build or rewrite write kernel_shape."
    by_hand = "Write its kernel_shape."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        if not target.before(9):
            return
        for scope, index, node in view.model.nodes("Conv", "ConvTranspose"):
            says = any(attribute.name == "kernel_shape" for attribute in node.attribute)
            name = "" if says else first_computed(scope, index)
            if name:
                what = "weight" if name == node.input[1] else "bias"
                message = f"no kernel_shape, and the {what} {name!r} is not an initializer: {target} refuses it"
                yield self.finding(message, scope.location(index))
