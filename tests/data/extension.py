"""Acme's extension."""

import trtconv

owner = "ACME"


class FoldScale(trtconv.NodePass):
    """Multiplies the weight of a MatMul by the constant scale behind it.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n, 2] x) => (float[n, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[3] s = {2, 3, 4}>
        { t = MatMul (x, w)  y = Mul (t, s) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n, 2] x) => (float[n, 3] y) <float[2, 3] w = {2, 6, 12, 8, 15, 24}> { y = MatMul (x, w) }
    """

    name = "acme-fold-scale"
    ops = frozenset({"Mul"})

    def visit(self, field, node, target):
        if len(node.inputs[0].inputs) != 1 or node.inputs[0].inputs[0].op != "MatMul":
            return None
        product = node.inputs[0].inputs[0]
        w, s = field.values(product.inputs[1]), field.values(node.inputs[1])
        if w is None or s is None or s.shape != w.shape[1:] or field.escapes(product.outputs[0]):
            return None
        x, y = product.inputs[0], node.outputs[0]
        node.outputs.clear()
        made = field.node("MatMul", "acme", [x, field.constant("acme/w", w * s)], y)
        field.replace(node, [made])
        return "scale folded into the weight"


class Tanh(trtconv.OperatorRule):
    """A Tanh, which Acme does not like.

    What it checks:
        Tanh.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) { y = Tanh (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) { y = Relu (x) }
    """

    code = "ACME101"
    name = "acme-tanh"
    severity = trtconv.Severity.WARNING
    ops = ("Tanh",)

    def fault(self, scope, node, target):
        return "Tanh is slow on our chips"
