"""Lets 3-D pooling of quantised values be done between quantisers."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.passes.base import Pass, PassResult
from trtconv.passes.quantized import Group, each_group, has_linear

_SPATIAL_AXES = 3


class PoolInFloat(Pass):
    """Puts a 3-D MaxPool of int8 values between DequantizeLinear and QuantizeLinear: the same numbers.

    TensorRT's builder refuses it on int8 ("int8 3D pooling is not supported"). The largest of some steps is the same
    whatever they stand for.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,4,4,4] x) => (float[1,1,2,2,2] y) <float s = {0.1}, int8 z = {0}>
        { q = QuantizeLinear (x, s, z)
          p = MaxPool <kernel_shape = [2,2,2], strides = [2,2,2]> (q)  y = DequantizeLinear (p, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 1, 4, 4, 4] x) => (float[1, 1, 2, 2, 2] y)
        <float s = {0.1}, int8 z = {0}, float scale = {0.1}, int8 zero_point = {0}>
        {
          q = QuantizeLinear (x, s, z)
          real = DequantizeLinear (q, scale, zero_point)
          pooled = MaxPool <kernel_shape = [2, 2, 2], strides = [2, 2, 2]> (real)
          p = QuantizeLinear (pooled, scale, zero_point)
          y = DequantizeLinear (p, s, z)
        }
    """

    name = "pool-between-quantizers"

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return has_linear(model) and model.has({"MaxPool"})

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        result = PassResult()
        for field, group in each_group(model):
            pools = [node for node in group.movers if node.op == "MaxPool" and _is_3d(node)]
            reason = group.obstacle or _obstacle(group)
            for pool in pools:
                name = str(pool.name or pool.outputs[0].name)
                if reason:
                    result += PassResult(skipped=(Skip(self.name, name, reason),))
                else:
                    _put_between(field, group, pool, name)
                    result += PassResult((Edit(self.name, name, "pools between DequantizeLinear and QuantizeLinear"),))
        return result


def _is_3d(pool: gs.Node) -> bool:
    return len(pool.attrs.get("kernel_shape", ())) == _SPATIAL_AXES


def _obstacle(group: Group) -> str:
    if any(linear.scale.size > 1 for linear in group.linears):
        return "its values have several scales"
    return "" if len(group.zero_points) <= 1 and group.dtype is not None else "its values have several zero points"


def _put_between(field: Field, group: Group, pool: gs.Node, name: str) -> None:
    linear = group.linears[0]
    point = np.array(next(iter(group.zero_points)), group.dtype)
    unit = [field.constant(f"{name}.scale", linear.scale.reshape(())), field.constant(f"{name}.zero_point", point)]
    before = field.node("DequantizeLinear", f"{name}/Dequantize", [pool.inputs[0], *unit], f"{name}.real")
    output = pool.outputs[0]
    # Alone: behind it may be the indices.
    pool.outputs[0] = field.variable(f"{name}.pooled")
    pool.inputs[0] = before.outputs[0]
    behind = field.node("QuantizeLinear", f"{name}/Quantize", [pool.outputs[0], *unit], output)
    field.replace(pool, [before, pool, behind])
