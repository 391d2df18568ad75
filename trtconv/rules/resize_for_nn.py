"""TC607."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule


class ResizeForNearest(OperatorRule):
    """A Resize in a coordinate mode that TensorRT knows for nearest alone.

    What it checks:
        Resize nodes, linear and cubic, for tf_half_pixel_for_nn.
    Why TensorRT cares:
        The parser takes half_pixel in its place, without a message: the image is moved by half a pixel.
    Versions:
        TensorRT-RTX 1.7.
    Before:
        <ir_version: 8, opset_import: ["": 11]>
        g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[0] roi = {}, float[4] s = {1, 1, 2, 2}>
        { y = Resize <mode = "linear", coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, roi, s) }
    After:
        <ir_version: 8, opset_import: ["": 11]>
        g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[0] roi = {}, float[4] s = {1, 1, 2, 2}>
        { y = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (x, roi, s) }
    Fix:
        Export with half_pixel, asymmetric or align_corners.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes, and run.
    """

    code = "TC607"
    name = "resize-for-nearest"
    fix = "Use half_pixel, asymmetric or align_corners."
    ops = ("Resize",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        mode = attribute(node, "mode") or b"nearest"
        is_asked = attribute(node, "coordinate_transformation_mode") == b"tf_half_pixel_for_nn"
        return "TensorRT reads tf_half_pixel_for_nn as half_pixel" if is_asked and mode != b"nearest" else None
