"""Attention whose scores are an output too, or masked.

ONNX masks scores with -inf, ONNX Runtime 1.23 with the lowest number, which shows where they are an output and where a
whole row is masked; it caps scores (`softcap`) behind the mask, or what `is_causal` hides; and hides nothing from a
query that is alone.

Source: ONNX operator Attention.
"""

from __future__ import annotations

from trtconv.graph.attributes import attribute
from trtconv.graph.bodies import body_of, written_out
from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing

_SCORES = 3
"""Slot of the output that has the scores."""
_MASK = 3
"""Slot of the input that has the mask."""


def write_attention(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes an Attention out as ONNX defines it, where somebody wants its scores, or it masks any."""
    node = scope.columns.nodes[index]
    masks = any(node.input[_MASK : _MASK + 1]) or attribute(node, "is_causal", 0)
    expands = any(node.output[_SCORES:]) or masks
    function = body_of(scope, node, writing.opset) if expands else None
    if function is None:
        return False
    writing.nodes += written_out(function, node, lambda name: f"{node.output[0]}:{name}")
    return True
