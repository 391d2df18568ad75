"""TC104."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry
from trtconv.graph.views import Deconv
from trtconv.rules.base import DeconvRule


class StridedDilatedDeconv(DeconvRule):
    """A ConvTranspose has stride > 1 and dilation > 1, which the target cannot build.

    What it checks:
        Stride and dilation of every ConvTranspose, where the target has no such deconvolution.
    Why TensorRT cares:
        TensorRT-RTX parses the node and then fails to build: "Strided & Dilated Deconv are currently not supported".
    Versions:
        TensorRT-RTX 1.4 to 1.7. The full TensorRT computes it right (8.6, run).
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y) <float[1,1,2,2] w = {1,2,3,4}>
        { y = ConvTranspose <strides = [2,2], dilations = [2,2]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,0,2,0,0,0,3,0,4}>
        { y = ConvTranspose <strides = [2,2]> (x, w) }
    Fix:
        trtconv build and rewrite write the dilation into the kernel.
    Source:
        Builds on TensorRT-RTX 1.7.1.
    """

    code = "TC104"
    name = "strided-dilated-deconv"
    fix = "Let trtconv build or rewrite write the dilation into the kernel."
    by_hand = "Write the dilation into the kernel, as zeros between its elements."

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        if target.strided_dilated_deconv or not geometry.is_strided_and_dilated:
            return None
        return f"{target} cannot build strides {list(geometry.strides)} with dilations {list(geometry.dilations)}"
