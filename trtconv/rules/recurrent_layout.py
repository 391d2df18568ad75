"""TC611."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule


class RecurrentLayout(OperatorRule):
    """A recurrent layer with the batch first, which TensorRT reads as time first.

    What it checks:
        GRU, LSTM and RNN nodes for layout = 1.
    Why TensorRT cares:
        The parser does not know the attribute: it runs over the batch as if that were time.
    Versions:
        TensorRT-RTX 1.7, and every version whose parser is public.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3,4] x, float[1,5,4] w, float[1,5,5] r) => (float[2,3,1,5] y)
        { y = RNN <hidden_size = 5, layout = 1> (x, w, r) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[3,2,4] x, float[1,5,4] w, float[1,5,5] r) => (float[3,1,2,5] y)
        { y = RNN <hidden_size = 5> (x, w, r) }
    Fix:
        trtconv build and rewrite put Transposes around it.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes, and run.
    """

    code = "TC611"
    name = "recurrent-layout"
    fix = "Let trtconv build or rewrite put Transposes around it."
    by_hand = "Use layout 0, with Transposes around it."
    ops = ("GRU", "LSTM", "RNN")

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        return "TensorRT reads layout 1 (batch first) as 0 (time first)" if attribute(node, "layout") == 1 else None
