"""TC610."""

from __future__ import annotations

from typing import Any

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule, is_given


class ClipLimitsCrossed(OperatorRule):
    """A Clip whose lower limit is above its upper one; TensorRT returns the other of them.

    What it checks:
        Clip nodes with constant limits.
    Why TensorRT cares:
        ONNX returns the upper limit everywhere, TensorRT's layer the lower one.
    Versions:
        All, by the documentation of IActivationLayer.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x) => (float[4] y) <float low = {2}, float high = {1}> { y = Clip (x, low, high) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x) => (float[4] y) <float low = {1}, float high = {1}> { y = Clip (x, low, high) }
    Fix:
        trtconv build and rewrite lower the lower limit to the upper one, which is what ONNX computes.
    Source:
        ONNX operator Clip; TensorRT's documentation of ActivationType.CLIP.
    """

    code = "TC610"
    name = "clip-limits-crossed"
    fix = "Let trtconv build or rewrite write the limits as ONNX means them."
    by_hand = "Write limits that are not crossed."
    ops = ("Clip",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        low, high = attribute(node, "min"), attribute(node, "max")  # Until opset 10.
        if low is None or high is None:
            low, high = (_single(scope, node, index) for index in (1, 2))
        crossed = low is not None and high is not None and low > high
        return f"its limits {low} and {high} are crossed" if crossed else None


def _single(scope: Scope, node: onnx.NodeProto, index: int) -> Any:
    values = scope.values(node.input[index]) if is_given(node, index) else None
    return values.item() if values is not None and values.size == 1 else None
