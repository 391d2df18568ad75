"""Writes the pads of poolings whose sizes are rounded up."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.pooling import axes_of_pool, can_exceed, rounds_up
from trtconv.graph.scope import Scope
from trtconv.passes.base import NodePass, Refusal


class WritePoolPads(NodePass):
    """Writes ceil_mode as pads where the last window would begin in the end padding, which ONNX leaves out.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,2,2] x) => (float[1,1,1,1] y)
        { y = MaxPool <kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 1, 2, 2] x) => (float[1, 1, 1, 1] y) {
          y = MaxPool <kernel_shape = [1, 1], strides = [2, 2], pads = [0, 0, 0, 0]> (x)
        }
    """

    name = "write-pool-pads"
    fixes = ("TC612",)
    ops = frozenset({"AveragePool", "LpPool", "MaxPool"})
    looks_around = False

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        return rounds_up(scope.columns.attributes[index])

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        if not can_exceed(node.attrs):
            return None
        shape = field.shape(node.inputs[0])
        if shape is None or len(shape) != len(node.attrs["kernel_shape"]) + 2:
            return Refusal("the size of its input is not known")
        axes = axes_of_pool(node.attrs, shape[2:])
        known_axes = [axis for axis in axes if axis is not None]
        if all(axis.count == axis.rounded_up for axis in known_axes):
            return None if len(known_axes) == len(axes) else Refusal("the size of its input is not known")
        ends = [axis.exact_end for axis in known_axes]
        pads = [end for end in ends if end is not None]
        if len(pads) < len(axes):
            return Refusal("the pads would be negative, or depend on a dynamic size")
        if node.attrs.get("count_include_pad") and any(p > a.end for p, a in zip(pads, known_axes, strict=True)):
            return Refusal("its padding counts, and would grow")
        del node.attrs["ceil_mode"]
        node.attrs["pads"] = [axis.begin for axis in known_axes] + pads
        field.replace(node, [node])
        return f"ceil_mode written as pads {node.attrs['pads']}"
