"""Attention whose scores are an output too.

ONNX masks scores with -inf, ONNX Runtime 1.23 with the lowest number, which shows where they are an output.

Source: ONNX operator Attention.
"""

from __future__ import annotations

from trtconv.graph.bodies import body_of, written_out
from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing

_SCORES = 3
"""Slot of the output that has the scores."""


def write_attention(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes an Attention out as ONNX defines it, where somebody wants its scores."""
    node = scope.columns.nodes[index]
    function = body_of(scope, node, writing.opset) if any(node.output[_SCORES:]) else None
    if function is None:
        return False
    writing.nodes += written_out(function, node, lambda name: f"{node.output[0]}:{name}")
    return True
