"""TC618."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule, is_given

_SCALES, _SIZES = 2, 3
_NEAR = 1e-4
"""A scale is a float32: 3 * (2/3) is 2."""


class ResizeFractionalLength(OperatorRule):
    """A Resize that aligns corners, by scales that give no whole number of elements.

    What it checks:
        Resize with coordinate_transformation_mode align_corners, linear or cubic, whose constant scales times the
        input's size is no whole number on some axis.
    Why TensorRT cares:
        ONNX places the last element by the length before it is rounded down, TensorRT (and ONNX Runtime) by the length
        that the output has: 4.0 for 3.14 where 4 elements are resized by 0.6.
    Versions:
        TensorRT 8.6 (run), RTX 1.7 (by the layer that the parser makes).
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,4,5] x) => (float[1,1,2,3] y) <float[4] s = {1, 1, 0.6, 0.6}>
        { y = Resize <coordinate_transformation_mode = "align_corners", mode = "linear"> (x, , s) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,4,5] x) => (float[1,1,2,3] y) <int64[4] z = {1, 1, 2, 3}>
        { y = Resize <coordinate_transformation_mode = "align_corners", mode = "linear"> (x, , , z) }
    Fix:
        Give the output's sizes instead of scales: everybody reads those alike, and as PyTorch does.
    Source:
        Run on TensorRT 8.6.0: test_resize_downsample_scales_linear_align_corners of
        bench/results/gpu-node-suite-8.6.json.
    """

    code = "TC618"
    name = "resize-fractional-length"
    fix = "Give the output's sizes instead of scales."
    ops = ("Resize",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        mode = attribute(node, "coordinate_transformation_mode")
        if mode != b"align_corners" or attribute(node, "mode") not in (b"linear", b"cubic"):
            return None
        if not is_given(node, _SCALES) or is_given(node, _SIZES):
            return None
        scales, shape = scope.values(node.input[_SCALES]), scope.shape(node.input[0])
        if scales is None or shape is None or len(shape) != scales.size:
            return None
        for axis, (size, scale) in enumerate(zip(shape, scales.reshape(-1).tolist(), strict=True)):
            length = None if size is None else size * scale
            if length is not None and abs(length - round(length)) > _NEAR:
                return f"{size} elements of axis {axis} become {length:.4g}, rounded down: corners move"
        return None
