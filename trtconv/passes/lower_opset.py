"""Writes a model at an older opset."""

from __future__ import annotations

from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.older_opset import LOWERED, Change, lowered
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.passes.base import Pass, PassResult


class LowerOpset(Pass):
    """Writes a model of a newer opset at 17 for TensorRT 8.6, which knows no newer one and reads some of it wrongly.

    It takes a reduction whose axes are an input, as they are since opset 18, for one over all axes. Nodes that opset
    17 has with the same attributes and inputs mean the same there; what is spelled otherwise is written as it was.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 20]>
        g (float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Relu(x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) {
          y = Relu (x)
        }
    """

    name = "lower-opset"
    fixes = ("TC001", "TC613")

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return target.before(9) and model.opset > LOWERED

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        if not self.may_act(model, target):
            return PassResult()
        newest = model.opset
        if model.proto.functions:
            return PassResult(skipped=(Skip(self.name, "model-local functions", "they have opsets of their own"),))
        changes: list[Change] = []
        for scope in model.scopes:
            for index, node in enumerate(scope.columns.nodes):
                change = lowered(scope, node, newest)
                if isinstance(change, str):
                    place = node.name or str(scope.location(index))
                    return PassResult(skipped=(Skip(self.name, place, change),))
                changes += change
        for apply in changes:
            apply()
        for entry in model.proto.opset_import:
            if entry.domain in ONNX_DOMAINS:
                entry.version = LOWERED
        model.touch()
        return PassResult((Edit(self.name, "model", f"opset {newest} written as {LOWERED}"),))
