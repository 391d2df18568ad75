"""TC603."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule, is_given


class AttentionValidLengths(OperatorRule):
    """An Attention that is told how many keys are valid, which TensorRT leaves out.

    What it checks:
        Attention nodes for the input nonpad_kv_seqlen.
    Why TensorRT cares:
        The parser drops the input without a message: padding counts as keys, and a causal mask is aligned at the wrong
        end.
    Versions:
        TensorRT-RTX 1.7.
    Before:
        <ir_version: 13, opset_import: ["": 24]>
        g (float[1,1,4,8] q, float[1,1,4,8] k, float[1,1,4,8] v, int64[1] n) => (float[1,1,4,8] y)
        { y = Attention (q, k, v, "", "", "", n) }
    After:
        <ir_version: 13, opset_import: ["": 24]>
        g (float[1,1,4,8] q, float[1,1,4,8] k, float[1,1,4,8] v, bool[4,4] m) => (float[1,1,4,8] y)
        { y = Attention (q, k, v, m) }
    Fix:
        Give the valid lengths as a mask: the input attn_mask.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes, and run.
    """

    code = "TC603"
    name = "attention-valid-lengths"
    fix = "Give the valid lengths as a mask (attn_mask)."
    ops = ("Attention",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        return "TensorRT leaves nonpad_kv_seqlen out" if is_given(node, 6) else None
