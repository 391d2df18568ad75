"""TC605."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule, is_given


class ReductionNoop(OperatorRule):
    """A reduction over no axes, of which TensorRT leaves out the rest too.

    What it checks:
        ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp and ReduceSumSquare with noop_with_empty_axes and no input
        axes.
    Why TensorRT cares:
        ONNX then reduces nothing and still takes magnitudes, squares or logarithms of each element. The parser hands
        the input on.
    Versions:
        TensorRT-RTX 1.7.
    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3] x) => (float[2,3] y) { y = ReduceL1 <noop_with_empty_axes = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3] x) => (float[2,3] y) <int64[0] axes = {}>
        { y = ReduceL1 <noop_with_empty_axes = 1> (x, axes) }
    Fix:
        trtconv build and rewrite write what it does to each element: Abs, Log, Mul or nothing.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes, and run.
    """

    code = "TC605"
    name = "reduction-noop"
    fix = "Let trtconv build or rewrite write what it does to each element."
    by_hand = "Give it a constant of no axes as its second input."
    ops = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        lacks = attribute(node, "noop_with_empty_axes") == 1 and not is_given(node, 1)
        return f"TensorRT hands the input on, where {node.op_type} still computes" if lacks else None
