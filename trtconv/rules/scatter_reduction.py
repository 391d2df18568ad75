"""TC621."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule


class ScatterReduction(OperatorRule):
    """A ScatterND or ScatterElements that adds, multiplies or compares; TensorRT's only replaces.

    What it checks:
        ScatterND and ScatterElements nodes for a reduction.
    Why TensorRT cares:
        Its parser refuses one, for ScatterElements without a word about which node it is.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[3] x, int64[2,1] i, float[2] u) => (float[3] y) { y = ScatterND <reduction = "add"> (x, i, u) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[3] x, int64[2,1] i, float[2] u) => (float[3] y) { y = ScatterND (x, i, u) }
    Fix:
        trtconv build and rewrite compare the positions of all updates with all elements, where the sizes of both are
        known and their product is at most 16 million. Otherwise give the model fixed sizes, write the sum as a MatMul
        with a one-hot matrix, or leave the node to ONNX Runtime with build --partition.
    Source:
        Networks parsed by TensorRT-RTX 1.7.1.
    """

    code = "TC621"
    name = "scatter-reduction"
    fix = "Let trtconv build or rewrite compare positions."
    by_hand = (
        "Fix the sizes of what it scatters into and of its updates, write the sum as a MatMul with a one-hot matrix, "
        "or leave it to ONNX Runtime: build --partition (docs/partition.md)."
    )
    ops = ("ScatterElements", "ScatterND")

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        reduction = attribute(node, "reduction") or b"none"
        if reduction == b"none":
            return None
        return f"it reduces by {reduction.decode(errors='replace')!r}, and TensorRT's only replaces"
