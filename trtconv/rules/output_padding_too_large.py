"""TC105."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry
from trtconv.graph.views import Deconv
from trtconv.rules.base import DeconvRule


class OutputPaddingTooLarge(DeconvRule):
    """A ConvTranspose asks for as many extra elements as its stride and dilation, or more.

    What it checks:
        output_padding < max(stride, dilation) for each axis, and the same of the elements by which an output_shape goes
        beyond the full result.
    Why TensorRT cares:
        It accepts the node and returns rows of bias. PyTorch refuses it, ONNX forbids it, and ONNX Runtime refuses or
        computes garbage, so there is no result to agree with: the model is wrong.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], output_padding = [2,2]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], output_padding = [1,1]> (x, w) }
    Fix:
        Use an output_padding smaller than the stride (or the dilation), or pad behind the layer.
    Source:
        torch.nn.ConvTranspose2d; ONNX operator ConvTranspose.
    """

    code = "TC105"
    name = "output-padding-too-large"
    fix = "Use an output_padding smaller than stride or dilation, or an explicit pad behind the layer."

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        axes = geometry.excess_axes(deconv.sizes if geometry.output_shape else None)
        if not axes:
            return None
        request = (
            f"output_shape {list(geometry.output_shape)}"
            if geometry.output_shape
            else f"output_padding {list(geometry.output_padding)}"
        )
        return (
            f"{request} asks for too much on spatial axis {', '.join(map(str, axes))}: extra elements must be fewer"
            f" than stride {list(geometry.strides)} or dilation {list(geometry.dilations)}"
        )
