"""TC606."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule


class SpaceToDepthMode(OperatorRule):
    """A SpaceToDepth in the mode CRD, which TensorRT reads as DCR.

    What it checks:
        SpaceToDepth nodes for the attribute mode.
    Why TensorRT cares:
        The parser does not know the attribute: the right values go to the wrong channels, without a message.
    Versions:
        TensorRT-RTX 1.7.
    Before:
        <ir_version: 13, opset_import: ["": 28]>
        g (float[1,2,4,4] x) => (float[1,8,2,2] y) { y = SpaceToDepth <blocksize = 2, mode = "CRD"> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,8,2,2] y) <int64[8] order = {0, 2, 4, 6, 1, 3, 5, 7}>
        { d = SpaceToDepth <blocksize = 2> (x)
          y = Gather <axis = 1> (d, order) }
    Fix:
        trtconv build and rewrite put the channels in order behind it.
    Source:
        Read back from the network that TensorRT-RTX 1.7.1 makes, and run.
    """

    code = "TC606"
    name = "space-to-depth-mode"
    fix = "Let trtconv build or rewrite order the channels."
    by_hand = "Order the channels with a Gather behind it."
    ops = ("SpaceToDepth",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        return "TensorRT reads mode CRD as DCR" if attribute(node, "mode") == b"CRD" else None
