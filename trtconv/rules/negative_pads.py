"""TC106."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry
from trtconv.graph.views import Deconv
from trtconv.rules.base import DeconvRule


class NegativePads(DeconvRule):
    """A ConvTranspose has negative pads.

    What it checks:
        The pads attribute, where auto_pad and output_shape do not overrule it.
    Why TensorRT cares:
        A deconvolution layer takes pads >= 0 only; the parser refuses the node.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], pads = [-1,-1,0,0]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y)
          <float[1,1,4,4] w = {0,0,0,0,0,1,2,3,0,4,5,6,0,7,8,9}>
        { y = ConvTranspose <strides = [2,2]> (x, w) }
    Fix:
        trtconv build and rewrite zero-extend the kernel, or the input in float32 on TensorRT.
    Source:
        Parser of 8.6 and RTX 1.7.
    """

    code = "TC106"
    name = "negative-pads"
    fix = "Let trtconv build or rewrite take it into the deconvolution."
    by_hand = "Zero-extend the kernel instead of negative pads."

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        if geometry.auto_pad != "NOTSET" or geometry.output_shape is not None:
            return None
        pads = geometry.begin_pads + geometry.end_pads
        return f"pads {list(pads)} are negative: TensorRT refuses them" if min(pads) < 0 else None
