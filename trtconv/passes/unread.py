"""Leaves out what is computed for nobody, where a parser would refuse it all the same."""

from __future__ import annotations

from trtconv.core.documents.rewrite import Edit
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.splice import prune, unread
from trtconv.passes.base import Pass, PassResult

_OPS = ("Compress", "NonMaxSuppression", "NonZero", "Unique")


class LeaveOutUnread(Pass):
    """Leaves out nodes whose results nobody reads, where one of them returns as many elements as its values say.

    TensorRT's parser takes all nodes of a file or refuses it, and TensorRT-RTX has no NonZero, though nothing would
    come of this one: what a tool cut off a network, or what only a training wanted, is left so.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,3] y) { places = NonZero (x)  rows = Transpose (places)  y = Relu (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }
    """

    name = "leave-out-unread"
    fixes = ("TC204",)

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return model.has(_OPS)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        edits: list[Edit] = []
        ends: dict[int, set[str]] = {}
        for scope in model.scopes:
            nodes, names = unread(scope)
            first = next((index for index in sorted(nodes) if scope.columns.ops[index] in _OPS), None)
            if first is not None:
                place = scope.columns.names[first] or str(scope.location(first))
                edits.append(Edit(self.name, place, f"left out with all that nobody reads, nodes: {len(nodes)}"))
                ends[scope.position] = names
        if ends:
            prune(model, ends)
        return PassResult(tuple(edits))
