"""TC103."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry, crops
from trtconv.graph.views import Deconv
from trtconv.rules.base import DeconvRule


class OutputShapeMisread(DeconvRule):
    """A ConvTranspose has an output_shape that TensorRT's parser reads differently from ONNX.

    What it checks:
        output_shape on sizes that are dynamic, or whose total padding is odd, negative or meets output_padding.
    Why TensorRT cares:
        ONNX gives the larger half of an odd total padding to the low end (unless auto_pad is SAME_UPPER); the parser
        gives it to the high end: the output is shifted by one element, 0.67 relative error, no message. With dynamic
        sizes the parser computes with -1 and refuses. In 1-D it misreads the attribute altogether.
    Versions:
        All; run on 8.6, network inspected on RTX 1.7.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,10,10] x) => (float[1,1,20,20] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], output_shape = [20,20]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,10,10] x) => (float[1,1,20,20] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], pads = [1,1,0,0]> (x, w) }
    Fix:
        trtconv build and rewrite write the pads that the output_shape means, or a Slice where sizes are dynamic.
    Source:
        ONNX operator ConvTranspose; measured, see docs/deconvolution.md.
    """

    code = "TC103"
    name = "output-shape-misread"
    fix = "Let trtconv build or rewrite write explicit pads."
    by_hand = "Write explicit pads instead of output_shape."

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        if geometry.output_shape is None:
            return None
        sizes = list(geometry.output_shape)
        window = crops(geometry, deconv.sizes)
        if window is None:
            return f"output_shape {sizes} on dynamic sizes: TensorRT computes the pads with size -1 and refuses"
        if geometry.rank > 1 and all(c.begin == c.end for c in window) and not any(geometry.output_padding):
            return None
        pads = [c.begin for c in window], [c.end for c in window]
        return f"output_shape {sizes} means pads {pads[0]} (begin) and {pads[1]} (end); TensorRT's parser differs"
