"""Resize of axes that are counted from the end.

ONNX Runtime before 1.27 takes the scales of such axes from memory that nobody has written: it refuses the node, resizes
it otherwise, or ends its process.

Source: ONNX operator Resize, opset 18.
"""

from __future__ import annotations

import onnx

from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing


def write_resize(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a Resize whose axes are counted from the front."""
    node = scope.columns.nodes[index]
    axes = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "axes"), [])
    shape = scope.shape(node.input[0])
    if shape is None or min(axes, default=0) >= 0:
        return False
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    (attribute,) = (attribute for attribute in copy.attribute if attribute.name == "axes")
    attribute.ints[:] = [axis + len(shape) if axis < 0 else axis for axis in axes]
    writing.nodes.append(copy)
    return True
