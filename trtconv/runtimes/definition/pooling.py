"""AveragePool whose padding counts and whose sizes are rounded up.

Up to opset 18, ONNX Runtime 1.23 divides a window that reaches beyond the end by all of its elements; what lies
there is no padding, and counts nowhere. Left as it is where a last window may begin in the padding: there is none then.

Source: ONNX operator AveragePool, as PyTorch and ONNX Runtime 1.32 compute it.
"""

from __future__ import annotations

from typing import Any

from trtconv.graph.attributes import attributes_of
from trtconv.graph.pooling import axes_of_pool, can_exceed
from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing


def write_average_pool(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes its padding out, so that none is left which might count or not."""
    node = scope.columns.nodes[index]
    attributes = attributes_of(node)
    counts = attributes.pop("count_include_pad", 0) and attributes.get("ceil_mode", 0)
    kernel = attributes.get("kernel_shape")
    if not counts or not kernel or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        return False
    pads = attributes.pop("pads", [0] * 2 * len(kernel))
    if _begins_in_padding(scope.shape(node.input[0]), {**attributes, "pads": pads}):
        return False
    source, axes = node.input[0], len(kernel)
    if any(pads):
        source = writing.pad(source, [0, 0, *pads[:axes]], [0, 0, *pads[axes:]])
    writing.compute("AveragePool", source, **attributes)
    writing.finish()
    return True


def _begins_in_padding(shape: tuple[int | None, ...] | None, attributes: dict[str, Any]) -> bool:
    """Whether a last window may begin in the padding, where there is none."""
    sizes = [None] * len(attributes["kernel_shape"]) if shape is None else shape[2:]
    axes = axes_of_pool(attributes, sizes)
    if None in axes:
        return can_exceed(attributes)
    return any(axis is not None and axis.rounded_up != axis.count for axis in axes)
