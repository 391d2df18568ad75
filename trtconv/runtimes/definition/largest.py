"""TopK that is not sorted, in the order of one that is.

ONNX leaves the order open, and ONNX Runtime returns that of a heap; TensorRT sorts.

Source: ONNX operator TopK, attribute sorted.
"""

from __future__ import annotations

import onnx

from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing


def write_largest(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a TopK of any order with that of its values."""
    node = scope.columns.nodes[index]
    if all(attribute.name != "sorted" or attribute.i for attribute in node.attribute):
        return False
    ordered = onnx.NodeProto()
    ordered.CopyFrom(node)
    for attribute in ordered.attribute:
        if attribute.name == "sorted":
            attribute.i = 1
    writing.nodes.append(ordered)
    return True
