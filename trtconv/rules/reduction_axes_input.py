"""TC613."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule, is_given


class ReductionAxesInput(OperatorRule):
    """A reduction that is given its axes as an input, which TensorRT 8.6 does not look at.

    What it checks:
        For TensorRT 8.6: ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL1, ReduceL2, ReduceLogSum,
        ReduceLogSumExp and ReduceSumSquare with a second input.
    Why TensorRT cares:
        Since opset 18 axes are an input. 8.6 knows the attribute alone, and reduces over all axes without a message:
        shape (1, 1, 1, 1) for (1, 8, 1, 1).
    Versions:
        TensorRT 8.6.
    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 18]>
        g (float[1,8,4,4] x) => (float[1,8,1,1] y) <int64[2] axes = {2, 3}> { y = ReduceMean (x, axes) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,8,4,4] x) => (float[1,8,1,1] y) { y = ReduceMean <axes = [2, 3]> (x) }
    Fix:
        trtconv build and rewrite write the model at opset 17 for it.
    Source:
        Run on TensorRT 8.6.0: bench/results/gpu-suite-8.6.json.
    """

    code = "TC613"
    name = "reduction-axes-input"
    fix = "Let trtconv build or rewrite lower the opset to 17."
    by_hand = "Export with opset 17."
    ops = (
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceSumSquare",
    )

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        if not target.before(9) or not is_given(node, 1):
            return None
        return f"{target} does not see the input axes and reduces over all of them"
