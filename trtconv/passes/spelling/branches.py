"""Takes the branches of conditions that constants and shapes decide."""

from __future__ import annotations

from trtconv.core.documents.rewrite import Edit
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.resolve import resolved
from trtconv.passes.base import Pass, PassResult
from trtconv.passes.spelling.folded import fold_sizes


class TakeDecidedBranches(Pass):
    """Puts the branch of an If in its place where constants and known sizes decide its condition.

    TensorRT parses both branches, and refuses the model for what stands in the one that is never taken.

    Before:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,3] x) => (float[2,3] y) <int64 six = {6}>
        {
          n = Size (x)  c = Equal (n, six)
          y = If (c) <then_branch = a () => (float[2,3] p) { p = Relu (x) },
                      else_branch = b () => (float[2,3] q) { q = Neg (x) }>
        }
    After:
        <ir_version: 8, opset_import: ["": 13]>
        g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }
    """

    name = "take-decided-branches"

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return bool(_decided(model))

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        places = _decided(model)
        if places:
            fold_sizes(model)
        return PassResult(
            tuple(Edit(self.name, place, "its condition is decided: one branch is left") for place in places)
        )


def _decided(model: OnnxModel) -> list[str]:
    """Returns the nodes of the main graph whose condition is computed and known; TensorRT sees constants itself."""
    scope, opsets = model.main, model.proto.opset_import
    return [
        scope.columns.names[index] or str(scope.location(index))
        for index in scope.by_op.get("If", ())
        if scope.constant(name := scope.columns.inputs[index][0]) is None
        and (condition := resolved(scope, name, opsets)) is not None
        and condition.size == 1
    ]
