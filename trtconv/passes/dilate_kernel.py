"""Writes dilation into the kernel where a target has no strided dilated deconvolution."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.core.target import Target
from trtconv.graph import deconv
from trtconv.graph.deconv import Geometry
from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv
from trtconv.passes.base import NodePass, Refusal
from trtconv.passes.kernel import find_kernel, replace_kernel


class DilateDeconvKernel(NodePass):
    """Writes the dilation of a strided ConvTranspose into its kernel, as zeros between taps.

    TensorRT-RTX parses a deconvolution with stride and dilation and then fails to build it.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,8,8] x) => (float[1,1,p,q] y) <float[1,1,2,2] w = {1,2,3,4}>
        { y = ConvTranspose <strides = [2,2], dilations = [2,2]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 1, 8, 8] x) => (float[1, 1,p,q] y)
        <float[1, 1, 3, 3] weight = {1, 0, 2, 0, 0, 0, 3, 0, 4}>
        {
          y = ConvTranspose <strides = [2, 2], dilations = [1, 1], kernel_shape = [3, 3]> (x, weight)
        }
    """

    name = "dilate-deconv-kernel"
    fixes = ("TC104",)
    ops = frozenset({"ConvTranspose"})
    looks_around = False

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return not target.strided_dilated_deconv and super().may_act(model, target)

    def concerns(self, scope: Scope, index: int, target: Target) -> bool:
        attributes = scope.columns.attributes[index]
        largest = {a.name: max(a.ints, default=1) for a in attributes if a.name in ("strides", "dilations")}
        return len(largest) == 2 and min(largest.values()) > 1

    def visit(self, field: Field, node: gs.Node, target: Target) -> str | Refusal | None:
        geometry = Deconv(field.scope, field.index(node)).geometry
        if isinstance(geometry, str):
            return Refusal(geometry)
        if not geometry.is_strided_and_dilated:
            return None
        kernel = find_kernel(field, node.inputs[1])
        if isinstance(kernel, str):
            if field.model.opset < 13:
                return Refusal(f"{kernel}, and dilating it at run time needs opset 13 or newer")
            nodes, weight = _dilate_at_run_time(field, node, geometry)
        else:
            nodes, weight = replace_kernel(
                field,
                node.name or "ConvTranspose",
                kernel,
                lambda w, zero: deconv.dilate_kernel(w, geometry.dilations, zero),
            )
        node.inputs[1] = weight
        node.attrs["kernel_shape"] = [(k - 1) * d + 1 for k, d in zip(geometry.kernel, geometry.dilations, strict=True)]
        node.attrs["dilations"] = [1] * geometry.rank
        field.replace(node, [*nodes, node])
        return f"dilations {list(geometry.dilations)} written into the kernel, now {node.attrs['kernel_shape']}"


def _dilate_at_run_time(field: Field, node: gs.Node, geometry: Geometry) -> tuple[list[gs.Node], gs.Tensor]:
    """Dilates a computed kernel: (C_in, C_out, k) -> (C_in, C_out, k, 1), pad to (.., k, d), flatten, cut the tail."""
    name, rank = node.name or "ConvTranspose", geometry.rank
    split = [0, 0, *(n for k in geometry.kernel for n in (k, 1))]
    tails = [0, 0, *(n for d in geometry.dilations for n in (0, d - 1))]
    joined = [0, 0, *(k * d for k, d in zip(geometry.kernel, geometry.dilations, strict=True))]
    ends = [(k - 1) * d + 1 for k, d in zip(geometry.kernel, geometry.dilations, strict=True)]
    steps: list[tuple[str, list[list[int]]]] = [
        ("Reshape", [split]),
        ("Pad", [[0] * len(tails) + tails]),
        ("Reshape", [joined]),
        ("Slice", [[0] * rank, ends, list(range(2, rank + 2))]),
    ]
    nodes: list[gs.Node] = []
    tensor: gs.Tensor = node.inputs[1]
    for op, arguments in steps:
        constants = [field.constant(f"{name}.{op}", np.array(values, np.int64)) for values in arguments]
        nodes.append(field.node(op, f"{name}/{op}", [tensor, *constants], f"{name}.{op}"))
        tensor = nodes[-1].outputs[0]
    return nodes, tensor
