"""TC608."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule, is_given


class ResizeScalesAtRunTime(OperatorRule):
    """A Resize whose scales are computed at run time, of which TensorRT keeps rounded sizes.

    What it checks:
        Resize nodes for scales that are no constant, where values between elements are interpolated.
    Why TensorRT cares:
        The parser makes sizes of them, rounded down, and takes the scale from these: where the product is no integer,
        every value is taken from another place.
    Versions:
        TensorRT-RTX 1.7.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,w] x, float[4] s) => (float[1,1,p,q] y)
        { y = Resize <mode = "linear"> (x, "", s) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,w] x) => (float[1,1,p,q] y) <float[4] s = {1, 1, 2, 2}>
        { y = Resize <mode = "linear"> (x, "", s) }
    Fix:
        Write the scales into the model, or give the sizes instead.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes, and run.
    """

    code = "TC608"
    name = "resize-scales-at-run-time"
    fix = "Write the scales as a constant, or give sizes."
    ops = ("Resize",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        between = (attribute(node, "mode") or b"nearest") != b"nearest"
        computed = is_given(node, 2) and not is_given(node, 3) and scope.values(node.input[2]) is None
        return "TensorRT rounds its scales to whole sizes" if between and computed else None
