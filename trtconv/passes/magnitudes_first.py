"""Takes magnitudes in front of a norm that TensorRT takes of signed values."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.passes.base import NodePass


class TakeMagnitudesFirst(NodePass):
    """Puts Abs in front of every GlobalLpPool with an odd power, which leaves it what it is in ONNX.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x) => (float[1,2,1,1] y) { y = GlobalLpPool <p = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 4, 4] x) => (float[1, 2, 1, 1] y) {
          magnitudes = Abs (x)
          y = GlobalLpPool <p = 1> (magnitudes)
        }
    """

    name = "take-magnitudes-first"
    fixes = ("TC604",)
    ops = frozenset({"GlobalLpPool"})

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | None:
        source = node.inputs[0]
        if node.attrs.get("p", 2) % 2 == 0 or any(maker.op == "Abs" for maker in source.inputs):
            return None
        name = label(node)
        positive = field.node("Abs", f"{name}/Abs", [source], f"{name}.magnitudes")
        node.inputs[0] = positive.outputs[0]
        field.replace(node, [positive, node])
        return "Abs put in front"
