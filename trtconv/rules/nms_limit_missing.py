"""TC609."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule, is_given


class NmsLimitMissing(OperatorRule):
    """A NonMaxSuppression that leaves limits out; TensorRT takes others than ONNX.

    What it checks:
        NonMaxSuppression nodes for max_output_boxes_per_class and score_threshold.
    Why TensorRT cares:
        Without the first ONNX selects no box, and TensorRT reads memory that is no longer there: some boxes, another
        number each time. Without the second ONNX keeps every score, and TensorRT those above 0.
    Versions:
        TensorRT-RTX 1.7.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,4,4] b, float[1,1,4] s) => (int64[n,3] y) { y = NonMaxSuppression (b, s) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,4,4] b, float[1,1,4] s) => (int64[n,3] y)
        <int64 most = {3}, float overlap = {0.5}, float least = {0}>
        { y = NonMaxSuppression (b, s, most, overlap, least) }
    Fix:
        trtconv build and rewrite write the limits that ONNX means.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes, and run.
    """

    code = "TC609"
    name = "nms-limit-missing"
    fix = "Let trtconv build or rewrite write the limits."
    by_hand = "Write max_output_boxes_per_class and score_threshold."
    ops = ("NonMaxSuppression",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        if not is_given(node, 2):
            return "no max_output_boxes_per_class: ONNX selects no box, TensorRT some number of them"
        return "no score_threshold: TensorRT leaves out scores of 0 and below" if not is_given(node, 4) else None
