"""TC604."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule


class GlobalLpPoolOddPower(OperatorRule):
    """A GlobalLpPool with an odd power, which TensorRT takes of signed values.

    What it checks:
        GlobalLpPool nodes for an odd p.
    Why TensorRT cares:
        The norm is of magnitudes. The parser leaves them out: with p = 1 it makes the sum, with p = 3 NaN where the
        sum is negative.
    Versions:
        TensorRT-RTX 1.7; which others is not known.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,1,1] y) { y = GlobalLpPool <p = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,1,1] y) { a = Abs (x)
          y = GlobalLpPool <p = 1> (a) }
    Fix:
        trtconv build and rewrite put Abs in front.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes, and run.
    """

    code = "TC604"
    name = "global-lp-pool-odd-power"
    fix = "Let trtconv build or rewrite put Abs in front."
    by_hand = "Put Abs in front of it."
    ops = ("GlobalLpPool",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        power = attribute(node, "p") or 2
        maker = scope.producer(node.input[0])
        positive = maker is not None and maker.op_type == "Abs"
        return f"TensorRT adds up powers of {power} of signed values" if power % 2 and not positive else None
