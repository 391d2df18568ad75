"""TC101."""

from __future__ import annotations

from trtconv.core.findings import Severity
from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry
from trtconv.graph.views import Deconv
from trtconv.rules.base import DeconvRule


class OutputPaddingExceedsPads(DeconvRule):
    """A ConvTranspose's output_padding is larger than its end pad: right, but slow.

    What it checks:
        output_padding against the end pad of each axis, with explicit pads.
    Why TensorRT cares:
        Its deconvolution has no output_padding. Up to the end pad the parser reduces the pad; beyond, it runs the
        deconvolution without bias, fills rows of zeros with a Slice and adds the bias: 1.3 to 2 times slower in float,
        2.4 to 3.7 times in int8, because the Q/DQ chain breaks.
    Versions:
        All; measured on 8.6.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,2,h,w] x) => (float[n,2,p,q] y) <float[2,2,3,3] w = {
          1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], output_padding = [1,1]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,2,h,w] x) => (float[n,2,p,q] y) <float[2,2,3,3] w = {
          1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], pads = [0,0,1,1], output_padding = [1,1]> (x, w) }
    Fix:
        trtconv build and rewrite zero-extend the kernel instead, or the input in float32 on TensorRT: the same numbers,
        the bias inside the deconvolution.
    Source:
        Measured, see docs/deconvolution.md; pytorch/TensorRT issue 3352.
    """

    code = "TC101"
    name = "output-padding-exceeds-pads"
    severity = Severity.WARNING
    fix = "Let trtconv build or rewrite take it into the deconvolution."
    by_hand = "Zero-extend the kernel at its end instead of output_padding."

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        if geometry.auto_pad != "NOTSET" or geometry.output_shape is not None:
            return None
        pairs = zip(geometry.output_padding, geometry.end_pads, strict=True)
        if not any(extra > max(pad, 0) for extra, pad in pairs):
            return None
        return (
            f"output_padding {list(geometry.output_padding)} is larger than the end pads {list(geometry.end_pads)}:"
            " TensorRT fills the rest with a Slice and an Add"
        )
