"""TC601."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule


class TriluWithoutUpper(OperatorRule):
    """A Trilu that does not say which triangle it keeps; TensorRT keeps the other one.

    What it checks:
        Trilu nodes for the attribute upper.
    Why TensorRT cares:
        ONNX keeps the upper triangle where the attribute is absent. The parser reads its absence as 0 and keeps the
        lower one, without a message.
    Versions:
        TensorRT-RTX 1.7; which others is not known.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4,4] x) => (float[4,4] y) { y = Trilu (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4,4] x) => (float[4,4] y) { y = Trilu <upper = 1> (x) }
    Fix:
        trtconv build and rewrite write the attribute.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes, and run.
    """

    code = "TC601"
    name = "trilu-without-upper"
    fix = "Let trtconv build or rewrite write upper = 1."
    by_hand = "Write upper = 1 in the file."
    ops = ("Trilu",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        return (
            "no attribute upper: ONNX keeps the upper triangle, TensorRT the lower"
            if attribute(node, "upper") is None
            else None
        )
