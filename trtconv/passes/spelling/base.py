"""A pass that writes operators which a target lacks in those that it has."""

from __future__ import annotations

from typing import ClassVar

from trtconv.core import budget
from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.patch import Patch, close_patches
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.passes.base import Pass, PassResult, complaint
from trtconv.passes.spelling.writer import Unwritable, Writer


class Spelling(Pass):
    """Writes nodes that a target refuses in other operators, with the same meaning.

    Attributes:
        ops: Operators that it looks at.
        domains: Their domains.
    """

    ops: ClassVar[frozenset[str]]
    domains: ClassVar[tuple[str, ...]] = ONNX_DOMAINS

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return any(self._sites(scope, target) for scope in model.scopes)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        result = self._round(model, target)
        edits, more = result.edits, result
        # What a node makes may say the shape that a node behind it was left out for.
        while more.edits and more.skipped:
            more = self._round(model, target)
            edits += more.edits
        return PassResult(edits, more.skipped)

    def _round(self, model: OnnxModel, target: Target) -> PassResult:
        edits: list[Edit] = []
        skips: list[Skip] = []
        patches: list[Patch] = []
        for scope in model.scopes:
            patch = Patch(model, scope)
            for index in self._sites(scope, target):
                writer = Writer(model, scope, index)
                place = writer.node.name or str(scope.location(index))
                try:
                    with budget.at(scope.location(index)):
                        what = self.write(writer, target)
                        writer.check()
                except Unwritable as why:
                    skips += [Skip(self.name, place, str(why))] if str(why) else []
                    continue
                except (ArithmeticError, LookupError, TypeError, ValueError):
                    # ONNX's checker passes many sizes that contradict each other; TensorRT's parser has words for them.
                    if complaint(model.without_weights()) is not None:
                        raise
                    skips.append(Skip(self.name, place, "its inputs and attributes do not fit together"))
                    continue
                patch.replace(index, writer.nodes, writer.initializers)
                edits.append(Edit(self.name, place, what or self._summary(writer)))
            patches.append(patch)
        close_patches(patches)
        return PassResult(tuple(edits), tuple(skips))

    def _sites(self, scope: Scope, target: Target) -> list[int]:
        domains = scope.columns.domains
        return sorted(
            index
            for op in self.ops & scope.by_op.keys()
            for index in scope.by_op[op]
            if domains[index] in self.domains and self.lacks(scope, index, target)
        )

    @staticmethod
    def _summary(writer: Writer) -> str:
        ops = dict.fromkeys(node.op_type for node in writer.nodes)
        return f"{writer.node.op_type} written as {', '.join(ops)}"

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        """Whether the target lacks a node's operator, or lacks it in this form; all of them, unless a pass says less.

        Asked often, so it costs little.

        Args:
            scope: The graph that the node is in.
            index: Position of a node of one of `ops`.
            target: What the model is meant for.
        """
        return True

    def write(self, writer: Writer, target: Target) -> str | None:
        """Writes the nodes that take a node's place.

        Args:
            writer: Takes them.
            target: What the model is meant for.

        Returns:
            What was done in words; None: the operators that it was written as.

        Raises:
            Unwritable: There are none with the same meaning, or nobody can say; without a word where there is no need.
        """
        raise NotImplementedError
