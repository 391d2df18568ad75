"""TC314."""

from __future__ import annotations

from collections.abc import Iterator

from trtconv.core.findings import Finding
from trtconv.core.target import Target
from trtconv.graph.shared_skips import shared_skips
from trtconv.rules.base import ModelView, Rule


class SharedSkipScale(Rule):
    """A skip connection has the scale of the Concat that takes it.

    What it checks:
        Tensors that a Concat takes and other nodes read too, as the skips of a U-Net: whether their quantiser has the
        scale of the one behind the Concat; also where the Concat takes them in float, and others quantise them with
        that scale.
    Why TensorRT cares:
        TensorRT 8.6 built such U-Nets without a message, and computed them 55 % and 76 % off; with another scale for
        each skip, by as little as a millionth, they were right.
    Versions:
        TensorRT 8.6, measured on an H100. Others were not run.
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
    Fix:
        trtconv build and rewrite give the skip a scale that is a step larger.
    Source:
        Measured, see docs/quantization.md.
    """

    code = "TC314"
    name = "shared-skip-scale"
    fix = "Let trtconv build or rewrite part the scales."
    by_hand = "Give the skip's quantiser a scale of its own."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        if not target.before(9):
            return
        for skip in shared_skips(view.model.main):
            concat = view.model.main.location(skip.concat)
            shared = f"its scale {skip.scale:.6g} is that of {concat}, which takes it"
            message = f"{shared}: TensorRT 8.6 computed such a network wrongly"
            yield self.finding(message, view.model.main.location(skip.nodes[0], skip.tensor))
