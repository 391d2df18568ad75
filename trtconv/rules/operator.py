"""Rules about one node of some operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import onnx

from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.graph.scope import Scope
from trtconv.rules.base import ModelView, Rule


def is_given(node: onnx.NodeProto, index: int) -> bool:
    """Whether a node has an input at a position."""
    return len(node.input) > index and bool(node.input[index])


class OperatorRule(Rule):
    """A rule about one node of some operators, looked at by itself.

    Attributes:
        ops: The operators.
    """

    ops: ClassVar[tuple[str, ...]]

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        for scope, index, node in view.model.nodes(*self.ops):
            message = self.fault(scope, node, target)
            if message:
                yield self.finding(message, scope.location(index))

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        """Returns what is wrong with a node, or None.

        Args:
            target: What the model is meant for.
        """
        raise NotImplementedError
