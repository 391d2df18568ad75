"""Orders the channels of a SpaceToDepth."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.passes.base import NodePass, Refusal


class OrderChannels(NodePass):
    """Writes SpaceToDepth in the mode CRD as one in the mode DCR with its channels put in order behind it.

    Before:
        <ir_version: 13, opset_import: ["": 28]>
        g (float[1,2,4,4] x) => (float[1,8,2,2] y) { y = SpaceToDepth <blocksize = 2, mode = "CRD"> (x) }
    After:
        <ir_version: 13, opset_import: ["": 28]>
        g (float[1, 2, 4, 4] x) => (float[1, 8, 2, 2] y)
        <int64[8] order = {0, 2, 4, 6, 1, 3, 5, 7}>
        {
          blocks_first = SpaceToDepth <blocksize = 2> (x)
          y = Gather <axis = 1> (blocks_first, order)
        }
    """

    name = "order-channels"
    fixes = ("TC606",)
    ops = frozenset({"SpaceToDepth"})
    looks_around = False

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        if node.attrs.get("mode") != "CRD":
            return None
        shape = field.shape(node.inputs[0])
        if shape is None or shape[1] is None:
            return Refusal("the number of its channels is not known")
        channels, block = shape[1], int(node.attrs["blocksize"]) ** 2
        order = np.arange(channels * block, dtype=np.int64).reshape(block, channels).T.reshape(-1)
        name, output = label(node), node.outputs[0]
        node.outputs = [field.variable(f"{name}.blocks_first")]
        del node.attrs["mode"]
        inputs = [node.outputs[0], field.constant(f"{name}.order", order)]
        ordered = field.node("Gather", f"{name}/Gather", inputs, output, axis=1)
        field.replace(node, [node, ordered])
        return "mode CRD written as DCR and a Gather of channels"
