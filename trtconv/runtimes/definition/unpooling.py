"""MaxUnpool whose output is larger than what it is inferred to be.

ONNX Runtime takes the indices as places of the larger output; they are those of the inferred one, which is then padded.

Source: ONNX operator MaxUnpool.
"""

from __future__ import annotations

from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing

_SHAPE = 2


def write_max_unpool(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a MaxUnpool out whose output shape is given."""
    node = scope.columns.nodes[index]
    stated = scope.values(node.input[_SHAPE]) if len(node.input) > _SHAPE and node.input[_SHAPE] else None
    shape = scope.shape(node.input[0])
    attributes = {each.name: list(each.ints) for each in node.attribute}
    if stated is None or shape is None or None in shape or "kernel_shape" not in attributes:
        return False
    kernel = attributes["kernel_shape"]
    axes = len(kernel)
    strides, pads = attributes.get("strides", [1] * axes), attributes.get("pads", [0] * 2 * axes)
    sizes = [size for size in shape[2:] if size is not None]
    inferred = [
        (size - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[axis + axes] for axis, size in enumerate(sizes)
    ]
    more = [int(wanted) - size for wanted, size in zip(stated.reshape(-1)[2:], inferred, strict=True)]
    if min(more) < 0:
        return False
    inner = writing.compute("MaxUnpool", *node.input[:_SHAPE], **attributes)
    writing.pad(inner, [0] * len(shape), [0, 0, *more])
    writing.finish()
    return True
