"""Computes transposed convolutions of many groups in one, where TensorRT runs the groups one after the other."""

from __future__ import annotations

import math

import onnx_graphsurgeon as gs

from trtconv.core.dims import times
from trtconv.core.target import Target
from trtconv.graph.deconv import Geometry, ungroup_kernel
from trtconv.graph.editor import Field
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv
from trtconv.passes.base import NodePass
from trtconv.passes.kernel import find_kernel, replace_kernel

_FEWEST_GROUPS = 8
_MOST_WEIGHTS, _MOST_TAPS = 1 << 22, 64


class UngroupDeconv(NodePass):
    """Makes ConvTranspose of many groups one of a single group, with zeros for the weights between them.

    TensorRT 8.6 takes 3 to 4 microseconds a group and a batch element for depthwise nodes, in every precision: 48
    channels, k3 s2, 32x32, batch 2 took 272 microseconds, where 64 -> 48 channels in one group take 11 to 24
    (bench/results/gpu-remedies-8.6.json). In one group the weights become as many times more: beyond 4 million, and for
    kernels beyond 64 taps, nodes are left alone.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,8,4] x) => (float[1,8,8] y)
        <float[8,1,2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}>
        { y = ConvTranspose <group = 8, strides = [2]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 8, 4] x) => (float[1, 8, 8] y)
        <float[8, 8, 2] weight = {1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 8, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 12, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 13, 14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 15, 16}>
        {
          y = ConvTranspose <group = 1, strides = [2]> (x, weight)
        }
    """

    name = "ungroup-deconv"
    ops = frozenset({"ConvTranspose"})
    looks_around = False

    def __init__(self, fewest: int = _FEWEST_GROUPS) -> None:
        self._fewest = fewest

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        return target.before(9) and any(
            a.name == "group" and a.i >= self._fewest for a in scope.columns.attributes[index]
        )

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | None:
        geometry = Deconv(field.scope, field.index(node)).geometry
        kernel = find_kernel(field, node.inputs[1])
        if not isinstance(geometry, Geometry) or isinstance(kernel, str) or any("Linear" in n.op for n in kernel.chain):
            return None
        group, taps = geometry.group, math.prod(geometry.kernel)
        if kernel.values.shape[0] % group or taps > _MOST_TAPS or kernel.values.size * group > _MOST_WEIGHTS:
            return None
        name = node.name or "ConvTranspose"
        nodes, weight = replace_kernel(field, name, kernel, lambda w, zero: ungroup_kernel(w, group))
        node.inputs[1] = weight
        node.attrs["group"] = 1
        field.replace(node, [*nodes, node])
        return f"{group} groups of {times(kernel.values.shape)} weights made one, with zeros between them"
