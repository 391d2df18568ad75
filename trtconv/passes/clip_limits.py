"""Uncrosses the limits of Clip."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph.editor import Field, label
from trtconv.passes.base import NodePass


class UncrossClipLimits(NodePass):
    """Lowers the lower limit of a Clip to the upper one where it is above, as ONNX computes it, not TensorRT.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x) => (float[4] y) <float low = {2}, float high = {1}> { y = Clip (x, low, high) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[4] x) => (float[4] y)
        <float high = {1}, float low = {1}>
        {
          y = Clip (x, low, high)
        }
    """

    name = "uncross-clip-limits"
    fixes = ("TC610",)
    ops = frozenset({"Clip"})
    looks_around = False

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | None:
        if "min" in node.attrs and "max" in node.attrs:  # Until opset 10.
            return _uncross_attributes(field, node)
        if len(node.inputs) < 3 or node.inputs[1].is_empty() or node.inputs[2].is_empty():
            return None
        low, high = field.values(node.inputs[1]), field.values(node.inputs[2])
        if low is None or high is None or low.size != 1 or high.size != 1 or not low.item() > high.item():
            return None
        node.inputs[1] = field.constant(f"{label(node)}.low", high)
        field.replace(node, [node])
        return f"lower limit {low.item()} lowered to the upper one, {high.item()}"


def _uncross_attributes(field: Field, node: gs.Node) -> str | None:
    low, high = node.attrs["min"], node.attrs["max"]
    # Not "<=": of a limit that is no number nothing is known.
    if not low > high:
        return None
    node.attrs["min"] = high
    field.replace(node, [node])
    return f"lower limit {low} lowered to the upper one, {high}"
