"""TC619."""

from __future__ import annotations

import onnx

from trtconv.core.findings import Severity
from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule


class BranchRanks(OperatorRule):
    """An If whose branches return tensors with different numbers of dimensions.

    What it checks:
        The number of dimensions that the two branches declare for each output. TorchScript writes such an If for
        `squeeze` of an axis whose size it does not know.
    Why TensorRT cares:
        The builder refuses it unless it can work out the condition while it builds, which sizes that are fixed often
        allow, but not in an If inside another.
    Versions:
        TensorRT-RTX 1.7.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,1] x, bool c) => (float[one,n] y) <int64[1] last = {1}> {
            z = If (c) <then_branch = a () => (float[n] t) { t = Squeeze (x, last) },
                        else_branch = b () => (float[n,1] e) { e = Identity (x) }>
            y = Flatten <axis = 0> (z)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,1] x, bool c) => (float[n] y) <int64[1] last = {1}> {
            y = If (c) <then_branch = a () => (float[n] t) { t = Squeeze (x, last) },
                        else_branch = b () => (float[n] e) { e = ReduceSum <keepdims = 0> (x, last) }>
        }
    Fix:
        Export it without the If: `x[..., 0]` or `x.reshape(...)` in place of `squeeze`. In a file that cannot be
        exported again, write the sizes in with onnxruntime.tools.make_dynamic_shape_fixed, and take the file that ONNX
        Runtime's basic optimisation writes (SessionOptions.optimized_model_filepath): it has the branch alone.
    Source:
        Networks of voice detection from public packages, built with TensorRT-RTX 1.7.1.
    """

    code = "TC619"
    name = "branch-ranks"
    severity = Severity.WARNING
    fix = "Export without the If, or fold it at fixed sizes: trtconv rule TC619."
    ops = ("If",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        branches = [attribute.g.output for attribute in node.attribute if attribute.HasField("g")]
        for one, other in zip(branches[0], branches[-1], strict=False):
            ranks = _rank(one), _rank(other)
            if None not in ranks and ranks[0] != ranks[1]:
                return f"its branches return tensors of {ranks[0]} and of {ranks[1]} dimensions"
        return None


def _rank(value: onnx.ValueInfoProto) -> int | None:
    tensor = value.type.tensor_type
    return len(tensor.shape.dim) if tensor.HasField("shape") else None
