"""Skips of quantised networks, for a TensorRT that computes those of shared scales otherwise."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from trtconv.core.documents.rewrite import Edit
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.shared_skips import SharedSkip, shared_skips
from trtconv.graph.splice import splice
from trtconv.passes.base import BrokenContract, Pass, PassResult
from trtconv.passes.quantized import has_linear

_APART = 128 / 127
"""A step of int8 more: that quantisers apart by so much are computed rightly was seen on TensorRT 8.6."""


class PartSkipScales(Pass):
    """Gives a skip a scale of its own where a Concat that takes it has the same, for TensorRT 8.

    TensorRT 8.6 computed a U-Net whose skips share their scale with the Concat and with the MaxPool that reads them too
    55 % off, without a message, and the same network with a scale of its own for each skip right
    (docs/quantization.md). It does the same where the Concat takes the skip in float, and what quantises its result has
    the scale that others quantise the skip with: there the Concat takes the quantised skip then. The skip is rounded
    once more, by at most half a step of its new scale.

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,4,4] x) => (float[1,1,2,2] p, float[1,2,4,4] y) <float s = {0.127}, int8 z = {0}>
        { r = Relu (x)
          q = QuantizeLinear (r, s, z)  d = DequantizeLinear (q, s, z)
          p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (d)
          n = Neg (d)  t = QuantizeLinear (n, s, z)  u = DequantizeLinear (t, s, z)
          c = Concat <axis = 1> (u, d)
          e = QuantizeLinear (c, s, z)  y = DequantizeLinear (e, s, z) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,4,4] x) => (float[1,1,2,2] p, float[1,2,4,4] y)
          <float s = {0.127}, float own = {0.128}, int8 z = {0}>
        { r = Relu (x)
          q = QuantizeLinear (r, own, z)  d = DequantizeLinear (q, own, z)
          p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (d)
          n = Neg (d)  t = QuantizeLinear (n, s, z)  u = DequantizeLinear (t, s, z)
          c = Concat <axis = 1> (u, d)
          e = QuantizeLinear (c, s, z)  y = DequantizeLinear (e, s, z) }
    """

    name = "part-skip-scales"
    fixes = ("TC314",)
    safety = "within tolerance"
    requantizes = True

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return target.before(9) and has_linear(model) and model.has({"Concat"})

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        # All are found first: one that has another scale already must not hide the next.
        skips = tuple(shared_skips(model.main))
        # By position, what takes a node's place.
        fresh: dict[int, list[onnx.NodeProto]] = {}
        edits = tuple(_part(model, skip, fresh) for skip in skips)
        if fresh:
            splice(model.proto.graph, fresh)
        if edits:
            model.touch()
        return PassResult(edits)


def _part(model: OnnxModel, skip: SharedSkip, fresh: dict[int, list[onnx.NodeProto]]) -> Edit:
    nodes = model.main.columns.nodes
    before = model.main.values(nodes[skip.nodes[0]].input[1])
    if before is None:
        raise BrokenContract(f"{skip.tensor}: the scale of a shared skip is computed")
    scale = np.asarray(before * np.asarray(_APART, before.dtype), before.dtype)
    own = numpy_helper.from_array(scale, model.fresh_name(f"{skip.tensor}.own_scale"))
    model.proto.graph.initializer.append(own)
    for index in skip.nodes:
        nodes[index].input[1] = own.name
    if skip.in_float:
        _quantise_once(model, skip, own, fresh)
    concat = nodes[skip.concat]
    where = concat.name or concat.output[0]
    message = f"{skip.tensor}: scale {skip.scale:.6g}, which {where} has too, is {float(scale.reshape(-1)[0]):.6g} now"
    return Edit(PartSkipScales.name, nodes[skip.nodes[0]].name or skip.tensor, message)


def _quantise_once(
    model: OnnxModel, skip: SharedSkip, own: onnx.TensorProto, fresh: dict[int, list[onnx.NodeProto]]
) -> None:
    """Gives Concats the dequantised skip where they take it in float, from where it is made."""
    scope, nodes, name = model.main, model.main.columns.nodes, skip.tensor
    zero = onnx.TensorProto()
    zero.CopyFrom(scope.constant(nodes[skip.nodes[0]].input[2]) or zero)
    zero.name = model.fresh_name(f"{name}.own_zero")
    model.proto.graph.initializer.append(zero)
    codes, real = model.fresh_name(f"{name}.codes"), model.fresh_name(f"{name}.quantised")
    title = model.fresh_name(f"{name}/Quantize")
    for index in skip.nodes:
        if nodes[index].input[0] == name:
            # Its quantiser may stand behind the Concat, and moves to where the skip is made.
            codes, title = nodes[index].output[0], nodes[index].name
            fresh[index] = [node for node in fresh.get(index, [nodes[index]]) if node is not nodes[index]]
            break
    pair = [
        onnx.helper.make_node("QuantizeLinear", [name, own.name, zero.name], [codes], title),
        onnx.helper.make_node(
            "DequantizeLinear", [codes, own.name, zero.name], [real], model.fresh_name(f"{name}/Dequantize")
        ),
    ]
    for index in skip.in_float:
        _rename(nodes[index], name, real)
    maker = scope.producers.get(name)
    if maker is None:
        fresh.setdefault(0, [nodes[0]])[:0] = pair
    else:
        fresh.setdefault(maker, [nodes[maker]]).extend(pair)


def _rename(node: onnx.NodeProto, name: str, to: str) -> None:
    """Makes a node read another tensor."""
    for slot, source in enumerate(node.input):
        if source == name:
            node.input[slot] = to
