"""TC310."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.graph.types import KNOWN_DOMAINS
from trtconv.rules.base import ModelView, Rule

INTEGER_OPERATORS = frozenset(
    {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QGemm", "QLinearAdd", "QLinearAveragePool"}
    | {"QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMatMul", "QLinearMul"}
    | {"QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"}
)


class IntegerOperator(Rule):
    """An operator computes on integers (QLinearConv, ConvInteger and their like).

    What it checks:
        Operators of ONNX and ONNX Runtime that take quantised tensors, and Resize where it interpolates such tensors.
    Why TensorRT cares:
        It has none of them: int8 layers are made of float layers between QuantizeLinear and DequantizeLinear.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (int8[1,2] a) => (int8[1,2] y) <float s = {0.1}, int8 z = {0}, int8[2,2] b = {1,2,3,4}>
        { y = QLinearMatMul (a, s, z, b, s, z, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2] a) => (float[1,2] y) <float s = {0.1}, int8 z = {0}, int8[2,2] b = {1,2,3,4}>
        { d = DequantizeLinear (b, s, z)
          y = MatMul (a, d) }
    Fix:
        trtconv build and rewrite write the operators that can be written so; or quantise with quant_format=QDQ.
    Source:
        Operator tables of the TensorRT ONNX parser.
    """

    code = "TC310"
    name = "integer-operator"
    fix = "Let trtconv build or rewrite write it with Q/DQ, or quantise with quant_format=QDQ."
    by_hand = "Quantise with quant_format=QDQ."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        for scope in view.model.scopes:
            for index in sorted(i for op in (*INTEGER_OPERATORS, "Resize") for i in scope.by_op.get(op, ())):
                node = scope.columns.nodes[index]
                if node.op_type != "Resize" and node.domain in KNOWN_DOMAINS:
                    yield self.finding(f"TensorRT has no {node.op_type}", scope.location(index))
                elif node.op_type == "Resize" and _interpolates_integers(scope, node):
                    yield self.finding(
                        "interpolates quantised values: TensorRT does that in float", scope.location(index)
                    )


def _interpolates_integers(scope: Scope, node: onnx.NodeProto) -> bool:
    return attribute(node, "mode", b"nearest") != b"nearest" and scope.dtype(node.input[0]) in ("int8", "uint8")
