"""MaxUnpool whose output is larger than what it is inferred to be.

ONNX Runtime takes the indices as places of the larger output; they are those of the inferred one, which is then padded.

Source: ONNX operator MaxUnpool.
"""

from __future__ import annotations

import onnx

from trtconv.graph.attributes import attributes_of
from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing

_SHAPE = 2


def write_max_unpool(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a MaxUnpool out whose output shape is given."""
    node = scope.columns.nodes[index]
    stated = _stated(scope, node)
    shape = scope.shape(node.input[0])
    attributes = attributes_of(node)
    if stated is None or shape is None or None in shape or len(stated) != len(shape):
        return False
    if "kernel_shape" not in attributes:
        return False
    kernel = attributes["kernel_shape"]
    axes = len(kernel)
    strides, pads = attributes.get("strides", [1] * axes), attributes.get("pads", [0] * 2 * axes)
    sizes = [size for size in shape[2:] if size is not None]
    inferred = [
        (size - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[axis + axes] for axis, size in enumerate(sizes)
    ]
    more = [goal - size for goal, size in zip(stated[2:], inferred, strict=True)]
    if min(more) < 0:
        return False
    inner = writing.compute("MaxUnpool", *node.input[:_SHAPE], **attributes)
    writing.pad(inner, [0] * len(shape), [0, 0, *more])
    writing.finish()
    return True


def _stated(scope: Scope, node: onnx.NodeProto) -> list[int] | None:
    """Returns the sizes that a node is asked for; where these come at run time, those that the file says it returns."""
    if len(node.input) <= _SHAPE or not node.input[_SHAPE]:
        return None
    values = scope.values(node.input[_SHAPE])
    if values is not None:
        return [int(size) for size in values.reshape(-1)]
    shape = scope.shape(node.output[0])
    return None if shape is None or None in shape else [size for size in shape if size is not None]
