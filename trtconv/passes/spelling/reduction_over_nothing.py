"""Reductions whose list of axes is empty, or left out."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.resolve import values_of_copy
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer

_ELEMENTWISE: Mapping[str, tuple[str, ...]] = {
    "ReduceL1": ("Abs",),
    # Large numbers become infinite, as they do where several are summed.
    "ReduceL2": ("Mul", "Sqrt"),
    "ReduceLogSum": ("Log",),
    "ReduceSumSquare": ("Mul",),
    **dict.fromkeys((f"Reduce{kind}" for kind in ("LogSumExp", "Max", "Mean", "Min", "Prod", "Sum")), ("Identity",)),
}
"""Reductions to what they do to a single element, one after the other."""
_OF_FLOATS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


class WriteElementwise(Spelling):
    """Writes a reduction over no axes, or of a tensor without axes, as what it does to each element.

    TensorRT's parser hands on the input of a ReduceL1 over no axes, that of 8.6 reduces over all of them, and tensors
    without axes it refuses.

    Before:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3] x) => (float[2,3] y) { y = ReduceL1 <noop_with_empty_axes = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2,3] x) => (float[2,3] y) { y = Abs (x) }
    """

    name = "write-elementwise"
    fixes = ("TC605", "TC613")
    ops = frozenset(_ELEMENTWISE)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        tensor, axes = (*scope.columns.inputs[index], "")[:2]
        node = scope.columns.nodes[index]
        if attribute(node, "noop_with_empty_axes"):
            values = values_of_copy(scope, axes) if axes else None
            if not axes or (values is not None and not values.size):
                return attribute(node, "axes") is None
        return scope.shape(tensor) == ()

    def write(self, writer: Writer, target: Target) -> str | None:
        tensor, *ops = writer.input(0), *_ELEMENTWISE[writer.node.op_type]
        if writer.node.op_type in _OF_FLOATS and writer.dtype(tensor).kind in "iu":
            raise Unwritable("ONNX has no roots and logarithms of integers")
        for op in ops:
            to = writer.output() if op == ops[-1] else ""
            tensor = writer(op, *[tensor] * (2 if op == "Mul" else 1), to=to)
        return None


class ReduceAllAxes(Spelling):
    """Leaves out an empty list of axes that stands for all of them, which TensorRT 8.6's parser refuses.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[1,1] y) <int64[0] none = {}> { y = ReduceSum (x, none) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] x) => (float[1,1] y) { y = ReduceSum (x) }
    """

    name = "reduce-all-axes"
    ops = frozenset(_ELEMENTWISE)

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        axes = (*scope.columns.inputs[index], "")[1]
        if not target.before(9) or not axes or attribute(scope.columns.nodes[index], "noop_with_empty_axes"):
            return False
        values = values_of_copy(scope, axes)
        return values is not None and not values.size

    def write(self, writer: Writer, target: Target) -> str | None:
        writer.again([writer.input(0)])
        return "an empty list of axes, which stands for all, left out"
