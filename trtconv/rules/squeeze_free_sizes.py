"""TC620."""

from __future__ import annotations

import onnx

from trtconv.core.findings import Severity
from trtconv.core.target import Target
from trtconv.graph.attributes import attribute
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule, is_given


class SqueezeFreeSizes(OperatorRule):
    """A Squeeze that names no axes, of a tensor with axes of free size.

    What it checks:
        A Squeeze without axes whose input has a size that the file leaves open. PyTorch's `x.squeeze()` is written so.
    Why TensorRT cares:
        It leaves out every axis of size 1: how many axes the result has depends on the sizes, and a network has to fix
        that. TensorRT takes the axes of free size for larger than 1, and refuses a profile with a size of 1 there.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[batch,3,1] x) => (float[n,3] y) { y = Squeeze (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[batch,3,1] x) => (float[batch,3] y) <int64[1] last = {2}> { y = Squeeze (x, last) }
    Fix:
        Name the axes in the model: `x.squeeze(-1)`. In a file that cannot be exported again, write the size in with
        `python -I -m onnxruntime.tools.make_dynamic_shape_fixed --dim_param batch --dim_value 1 IN OUT`; where a size
        is 2 or more in all profiles there is nothing to do.
    Source:
        Networks of speech from public packages, built with TensorRT-RTX 1.7.1.
    """

    code = "TC620"
    name = "squeeze-free-sizes"
    severity = Severity.WARNING
    fix = "Name the axes in the model (x.squeeze(-1)), or write the size into the file: trtconv rule TC620."
    ops = ("Squeeze",)

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        if is_given(node, 1) or attribute(node, "axes") is not None or not node.input:
            return None
        free = [axis for axis, size in enumerate(scope.shape(node.input[0]) or ()) if size is None]
        if not free:
            return None
        axes = " and ".join(map(str, free))
        return f"it names no axes, and leaves out axis {axes} too where the size there is 1"
