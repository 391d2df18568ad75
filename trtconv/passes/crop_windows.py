"""Crops pooling windows that reach beyond all of an axis."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.pooling import PoolAxis, axes_of_pool, rounds_up
from trtconv.graph.scope import Scope
from trtconv.passes.base import NodePass, Refusal


class CropPoolWindows(NodePass):
    """Crops a pooling window that is longer than its axis to the axis, where ceil_mode gives it exactly one window.

    transformers' EfficientNet pools all of an image with a window of 2560x2560: TensorRT takes none of that size. What
    lies beyond the end counts nowhere. Its stride is cropped, too.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,3,4] x) => (float[1,2,1,2] y)
        { y = AveragePool <kernel_shape = [2560, 2], strides = [2560, 2], ceil_mode = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 2, 3, 4] x) => (float[1, 2, 1, 2] y) {
          y = AveragePool <kernel_shape = [3, 2], strides = [3, 2], ceil_mode = 1> (x)
        }
    """

    name = "crop-pool-windows"
    ops = frozenset({"AveragePool", "LpPool", "MaxPool"})
    looks_around = False

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        return rounds_up(scope.columns.attributes[index])

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        shape, kernel = field.shape(node.inputs[0]), list(node.attrs.get("kernel_shape") or [])
        is_whole = node.attrs.get("auto_pad", "NOTSET") == "NOTSET" and set(node.attrs.get("dilations") or [1]) == {1}
        if shape is None or len(shape) != len(kernel) + 2 or not is_whole:
            return None
        axes = axes_of_pool(node.attrs, shape[2:])
        sizes = [axis.size if axis is not None and _is_beyond(axis) else None for axis in axes]
        strides = list(node.attrs.get("strides") or [1] * len(kernel))
        if not any(sizes) or min(strides) < 1 or any(axis is not None and axis.count < 1 for axis in axes):
            return None
        node.attrs["kernel_shape"] = [size or reach for size, reach in zip(sizes, kernel, strict=True)]
        node.attrs["strides"] = [size or stride for size, stride in zip(sizes, strides, strict=True)]
        field.replace(node, [node])
        return f"window {kernel} cropped to {node.attrs['kernel_shape']}"


def _is_beyond(axis: PoolAxis) -> bool:
    """Whether a pooling has one window along an axis, which has all of it and reaches beyond."""
    return axis.reach > axis.size and not (axis.begin or axis.end) and axis.count == 1
