"""A pass over an operator that ONNX has not, and what that computes."""

import numpy as np
import onnx
from onnx import helper

import trtconv

owner = "ACME"


class Expand(trtconv.Pass):
    """Writes Gate in operators of ONNX.

    Before:
        <ir_version: 8, opset_import: ["": 17, "acme": 1]>
        g (float[2,4] x) => (float[2,4] y) { y = acme.Gate (x) }
    After:
        <ir_version: 8, opset_import: ["": 17, "acme": 1]>
        g (float[2,4] x) => (float[2,4] y) { s = Sigmoid (x)  y = Mul (x, s) }
    """

    name = "acme-expand-gate"

    def run(self, model, target):
        edits, nodes = [], []
        for node in model.proto.graph.node:
            if node.op_type != "Gate":
                nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
                continue
            (x,), (y,) = node.input, node.output
            nodes += [helper.make_node("Sigmoid", [x], [f"{y}_s"]), helper.make_node("Mul", [x, f"{y}_s"], [y])]
            edits.append(trtconv.Edit(self.name, node.name, "written as Sigmoid and Mul"))
        if edits:
            del model.proto.graph.node[:]
            model.proto.graph.node.extend(nodes)
            model.touch()
        # A list, as whoever collects them has it.
        return trtconv.PassResult(edits)


@trtconv.reference("acme::Gate")
def gate(x):
    """x times its sigmoid.

    Model:
        <ir_version: 8, opset_import: ["": 17, "acme": 1]>
        g (float[n,4] x) => (float[n,4] y) { y = acme.Gate (x) }
    Sizes:
        x 3x4 -> y 3x4
        x 1x4 -> y 1x4
    """
    return x / (1 + np.exp(-x))
