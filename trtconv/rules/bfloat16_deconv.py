"""TC109."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry
from trtconv.graph.views import Deconv
from trtconv.rules.base import DeconvRule


class Bfloat16Deconv(DeconvRule):
    """A ConvTranspose in bfloat16, which the target cannot build.

    What it checks:
        The type of every ConvTranspose's weight, whatever it comes from.
    Why TensorRT cares:
        The parser takes a bfloat16 deconvolution and the builder has no kernel for it; TensorRT 8.6 has no bfloat16.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 22]>
        g (bfloat16[1,1,8,8] x) => (bfloat16[1,1,p,q] y) <bfloat16[1,1,1,1] w = {1}>
        { y = ConvTranspose (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 22]>
        g (float16[1,1,8,8] x) => (float16[1,1,p,q] y) <float16[1,1,1,1] w = {1}>
        { y = ConvTranspose (x, w) }
    Fix:
        Keep deconvolutions in float16 or float32.
    Source:
        Builds on TensorRT-RTX 1.7.1; NVIDIA/TensorRT issue 4829 (10 and 11).
    """

    code = "TC109"
    name = "bfloat16-deconv"
    fix = "Keep this deconvolution in float16 or float32."

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        name = deconv.node.input[1]
        weight = deconv.scope.initializer(name)
        # A weight that is computed, cast or dequantised has the type that it was given there.
        dtype = deconv.scope.dtype(name) if weight is None else None
        is_bfloat = dtype == "bfloat16" if weight is None else weight.data_type == onnx.TensorProto.BFLOAT16
        return f"{target} has no deconvolution in bfloat16" if is_bfloat else None
