"""TC311."""

from __future__ import annotations

from trtconv.core.findings import Severity
from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry
from trtconv.graph.views import Deconv
from trtconv.rules.base import DeconvRule

_INT8_CHANNELS = 4
"""Channels per group come in packs of four (one dp4a instruction)."""

FLOAT_INPUT = "its input is not dequantised"
"""What is also said where a pass computes in float what quantised the input: then the reason is another."""


class DeconvNotInt8(DeconvRule):
    """A deconvolution between Q/DQ nodes will not run in int8.

    What it checks:
        ConvTranspose nodes whose weight is dequantised: the input's DequantizeLinear, channels per group, rank, the
        QuantizeLinear behind, and whether an asymmetric quantiser keeps TensorRT from fusing.
    Why TensorRT cares:
        It then runs the layer in float on dequantised values: right, within rounding, but not faster than float.
    Versions:
        8.6 (measured: group > 1, and 3-D without a quantiser behind); others by the documented limits of int8 kernels.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y) <int8[2,3,1,1] w = {1,2,3,4,5,6}, float s = {0.1}, int8 z = {0}>
        { d = DequantizeLinear (w, s, z)
          y = ConvTranspose (x, d) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,3,p,q] y) <float[2,3,1,1] w = {1,2,3,4,5,6}>
        { y = ConvTranspose (x, w) }
    Fix:
        Give the layer what the message names, or leave it in float.
    Source:
        Measured, see docs/quantization.md; TensorRT developer guide, working with INT8.
    """

    code = "TC311"
    name = "deconv-not-int8"
    severity = Severity.INFO
    fix = "Give the layer what the message names, or leave it in float."

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        if not is_quantized(deconv):
            return None
        reasons = _reasons(deconv, geometry)
        return f"will not run in int8: {'; '.join(reasons)}" if reasons else None


def is_quantized(deconv: Deconv) -> bool:
    """Whether a deconvolution's weight is dequantised."""
    return deconv.dequantizer(1) is not None


def _reasons(deconv: Deconv, geometry: Geometry) -> list[str]:
    reasons = []
    given = deconv.dequantizer(0)
    if given is None:
        reasons.append(FLOAT_INPUT)
    elif given.zero_point is not None and given.zero_point.any():
        reasons.append("its input is quantised asymmetrically")
    shape = deconv.weight_shape
    if shape is not None and shape[0] is not None and shape[1] is not None:
        ins, outs = shape[0] // geometry.group, shape[1]
        if ins % _INT8_CHANNELS or outs % _INT8_CHANNELS:
            reasons.append(f"{ins} input and {outs} output channels a group are not multiples of {_INT8_CHANNELS}")
    if geometry.group > 1:
        reasons.append(f"it has {geometry.group} groups")
    if geometry.rank == 3 and not deconv.is_quantized_behind:
        reasons.append("it is 3-D and its output is not quantised")
    return reasons
