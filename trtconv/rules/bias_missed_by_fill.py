"""TC107."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry
from trtconv.graph.views import Deconv
from trtconv.rules.base import DeconvRule


class BiasMissedByFill(DeconvRule):
    """Rows that output_padding adds lack the bias, because the bias is no initializer.

    What it checks:
        output_padding beyond the end pad on a ConvTranspose whose bias is computed or a graph input.
    Why TensorRT cares:
        The parser fills the extra rows with zeros and adds the bias afterwards - but only a bias that is an
        initializer. Any other stays inside the deconvolution, and the extra rows are zero instead of the bias.
    Versions:
        All, read from the parser's source.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x, float[1] b) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], output_padding = [1,1]> (x, w, b) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x, float[1] b) => (float[1,1,p,q] y)
          <float[1,1,4,4] w = {1,2,3,0,4,5,6,0,7,8,9,0,0,0,0,0}>
        { y = ConvTranspose <strides = [2,2]> (x, w, b) }
    Fix:
        trtconv build and rewrite zero-extend the kernel or the input: the bias then reaches every row.
    Source:
        onnx-tensorrt, importer of ConvTranspose.
    """

    code = "TC107"
    name = "bias-missed-by-fill"
    fix = "Let trtconv build or rewrite take it into the deconvolution."
    by_hand = "Make the bias an initializer, or zero-extend the kernel at its end instead of output_padding."

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        if geometry.auto_pad != "NOTSET" or geometry.output_shape is not None:
            return None
        pairs = zip(geometry.output_padding, geometry.end_pads, strict=True)
        if not deconv.bias or deconv.scope.initializer(deconv.bias) is not None:
            return None
        if not any(extra > max(pad, 0) for extra, pad in pairs):
            return None
        return f"the rows that output_padding {list(geometry.output_padding)} adds lack the bias {deconv.bias!r}"
