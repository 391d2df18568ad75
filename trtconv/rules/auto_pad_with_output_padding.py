"""TC102."""

from __future__ import annotations

from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry
from trtconv.graph.views import Deconv
from trtconv.rules.base import DeconvRule


class AutoPadWithOutputPadding(DeconvRule):
    """A ConvTranspose has both auto_pad and output_padding: TensorRT ignores the output_padding.

    What it checks:
        auto_pad other than NOTSET together with a non-zero output_padding.
    Why TensorRT cares:
        The parser hands auto_pad on and drops output_padding. With SAME_UPPER the output has the right shape and is
        shifted by one element (0.69 relative error, no message); with VALID its shape is wrong.
    Versions:
        All; run on 8.6, network inspected on RTX 1.7.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,16,16] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], auto_pad = "SAME_UPPER", output_padding = [1,1]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,16,16] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { y = ConvTranspose <strides = [2,2], pads = [1,1,0,0]> (x, w) }
    Fix:
        trtconv build and rewrite write the pads that both together mean.
    Source:
        Measured, see docs/deconvolution.md.
    """

    code = "TC102"
    name = "auto-pad-with-output-padding"
    fix = "Let trtconv build or rewrite write explicit pads."
    by_hand = "Write explicit pads instead of auto_pad."

    def fault(self, deconv: Deconv, geometry: Geometry, target: Target) -> str | None:
        if geometry.auto_pad == "NOTSET" or geometry.output_shape is not None or not any(geometry.output_padding):
            return None
        return (
            f"TensorRT ignores output_padding {list(geometry.output_padding)} beside auto_pad {geometry.auto_pad}:"
            " the output is shifted or too small"
        )
