"""TC602."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule


class AttentionWindow(OperatorRule):
    """An Attention with a window, which TensorRT leaves out.

    What it checks:
        Attention nodes for left_window_size and right_window_size.
    Why TensorRT cares:
        TensorRT's attention has no window: the parser drops the sizes without a message, and every query sees every
        key.
    Versions:
        TensorRT-RTX 1.7.
    Before:
        <ir_version: 13, opset_import: ["": 26]>
        g (float[1,1,4,8] q, float[1,1,4,8] k, float[1,1,4,8] v) => (float[1,1,4,8] y)
        { y = Attention <left_window_size = 1> (q, k, v) }
    After:
        <ir_version: 13, opset_import: ["": 24]>
        g (float[1,1,4,8] q, float[1,1,4,8] k, float[1,1,4,8] v, bool[4,4] m) => (float[1,1,4,8] y)
        { y = Attention (q, k, v, m) }
    Fix:
        Give the window as a mask: the input attn_mask.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes, and run.
    """

    code = "TC602"
    name = "attention-window"
    fix = "Give the window as a mask (attn_mask)."
    ops = ("Attention",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        sizes = [attribute(node, name) for name in ("left_window_size", "right_window_size")]
        return "TensorRT leaves its window out" if any(size not in (None, -1) for size in sizes) else None
