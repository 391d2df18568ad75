"""TC612."""

from __future__ import annotations

import onnx

from trtconv.core.target import Target
from trtconv.graph.attributes import attributes_of
from trtconv.graph.pooling import axes_of_pool, can_exceed
from trtconv.graph.scope import Scope
from trtconv.rules.operator import OperatorRule


class PoolBeyondInput(OperatorRule):
    """A pooling whose size is rounded up to a window that lies wholly in the padding.

    What it checks:
        AveragePool, LpPool and MaxPool with ceil_mode, at the sizes of the model where these are static.
    Why TensorRT cares:
        ONNX leaves out a last window that begins in the end padding. TensorRT keeps it: the result is larger, and what
        comes after it fails or is moved.
    Versions:
        All: TensorRT 8.6 returns (1, 3, 2, 2) for (1, 3, 1, 1), and TensorRT-RTX 1.7 makes the same network.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,2,2] x) => (float[1,1,1,1] y)
        { y = MaxPool <kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1> (x) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,2,2] x) => (float[1,1,1,1] y)
        { y = MaxPool <kernel_shape = [1, 1], strides = [2, 2]> (x) }
    Fix:
        trtconv build and rewrite write explicit pads instead; where sizes are dynamic, a padding and a crop.
    Source:
        Run on TensorRT 8.6.0; read back from the network that TensorRT-RTX 1.7.1 makes.
    """

    code = "TC612"
    name = "pool-beyond-input"
    fix = "Let trtconv build or rewrite write explicit pads."
    by_hand = "Leave ceil_mode out, and write the pads."
    ops = ("AveragePool", "LpPool", "MaxPool")

    def fault(self, scope: Scope, node: onnx.NodeProto, target: Target) -> str | None:
        attributes = attributes_of(node)
        if attributes.get("ceil_mode") != 1 or not can_exceed(attributes):
            return None
        shape = scope.shape(node.input[0])
        if shape is None or len(shape) != len(attributes["kernel_shape"]) + 2:
            return None
        for axis in axes_of_pool(attributes, shape[2:]):
            if axis is not None and axis.count != axis.rounded_up:
                return f"{axis.rounded_up} windows in TensorRT, {axis.count} in ONNX, of a size of {axis.size}"
        return None
