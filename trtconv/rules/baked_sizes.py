"""TC211, TC212, TC213: sizes that an exporter wrote into a model as constants."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trtconv.core.dims import Range
from trtconv.core.export_command import export_command
from trtconv.core.findings import Finding, Severity
from trtconv.core.target import Target
from trtconv.rules.base import ModelView, Rule

if TYPE_CHECKING:
    from trtconv.graph.model import OnnxModel
    from trtconv.shapes.traced.repairs import Unrepaired
    from trtconv.shapes.traced.search import Baked


class BakedPixelShuffle(Rule):
    """A pixel shuffle is spelled as Reshape, Transpose, Reshape with the sizes of the exporter's example.

    What it checks:
        The three nodes in the order of torch.nn.PixelShuffle, PixelUnshuffle or TensorFlow's depth_to_space, with
        constant sizes where the input's are dynamic.
    Why TensorRT cares:
        The engine accepts only the size of the example, or sizes with as many elements, which it shuffles wrongly.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,8,h,w] x) => (float[1,2,a,b] y) <int64[6] s = {1,2,2,2,16,16}, int64[4] t = {1,2,32,32}> {
            p = Reshape (x, s)
            q = Transpose <perm = [0,1,4,2,5,3]> (p)
            y = Reshape (q, t)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,8,h,w] x) => (float[1,2,a,b] y) { y = DepthToSpace <blocksize = 2, mode = "CRD"> (x) }
    Fix:
        trtconv build and rewrite put DepthToSpace or SpaceToDepth there. Better: export with dynamic height and width.
    Source:
        pytorch/TensorRT issue 1568.
    """

    code = "TC211"
    name = "baked-pixel-shuffle"
    severity = Severity.WARNING
    fix = "Let trtconv build or rewrite put DepthToSpace there, or export with dynamic height and width."
    by_hand = "Export with dynamic height and width."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        baked = view.baked
        if baked is None:
            return
        for shuffle in baked.shuffles():
            message = f"a pixel shuffle{shuffle.node.line} by {shuffle.block} has the example's sizes as constants"
            yield self.finding(message, shuffle.node.location)


class BakedResize(Rule):
    """A Resize has constant sizes in a network that scales.

    What it checks:
        A Resize to constant sizes, in a model that accepts only the sizes that it was traced with, where the factor to
        the traced size is whole or one over a power of two.
    Why TensorRT cares:
        The engine accepts only the size of the example.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,w] x) => (float[1,1,h,w] y) <int64[4] s = {1,1,32,32}> {
            a = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)
            b = Resize <mode = "nearest"> (a, , , s)
            y = Add (b, x)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,w] x) => (float[1,1,h,w] y) <float[4] s = {1.0,1.0,2.0,2.0}> {
            a = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)
            b = Resize <mode = "nearest"> (a, , s)
            y = Add (b, x)
        }
    Fix:
        trtconv build and rewrite put the scales there. Better: export with dynamic height and width.
    Source:
        See docs/sizes.md.
    """

    code = "TC212"
    name = "baked-resize"
    severity = Severity.WARNING
    fix = "Let trtconv build or rewrite put scales there, or export with dynamic height and width."
    by_hand = "Export with dynamic height and width."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        baked = view.baked
        if baked is None:
            return
        for scaling in baked.scalings():
            message = f"Resize{scaling.node.line} to the constant sizes {list(scaling.sizes)} of the exporter's example"
            yield self.finding(message, scaling.node.location)
        for refusal in baked.refusals():
            if refusal.node.op == "Resize":
                yield _refused(self, view.model, baked, refusal)


class BakedReshape(Rule):
    """A Reshape has the batch, height or width of the exporter's example as a constant.

    What it checks:
        Constant targets of Reshape, in a model that accepts only the sizes that it was traced with.
    Why TensorRT cares:
        The engine accepts only the size of the example.
    Versions:
        All.
    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,4,h,w] x) => (float[n,4,l] y) <int64[3] s = {1,4,1024}> { y = Reshape (x, s) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,4,h,w] x) => (float[n,4,l] y) <int64[3] s = {0,0,-1}> { y = Reshape (x, s) }
    Fix:
        trtconv build and rewrite read the sizes where they come from. Better: export with dynamic shapes.
    Source:
        See docs/sizes.md.
    """

    code = "TC213"
    name = "baked-reshape"
    severity = Severity.WARNING
    fix = "Let trtconv build or rewrite read the sizes where they are, or export with dynamic shapes."
    by_hand = "Export with dynamic shapes."

    def check(self, view: ModelView, target: Target) -> Iterator[Finding]:
        baked = view.baked
        if baked is None:
            return
        for reshape in baked.targets():
            message = f"Reshape{reshape.node.line} to the constant {reshape.texts[0]} of the exporter's example"
            yield self.finding(message, reshape.node.location)
        for refusal in baked.refusals():
            if refusal.node.op != "Resize":
                yield _refused(self, view.model, baked, refusal)


def _refused(rule: Rule, model: OnnxModel, baked: Baked, refusal: Unrepaired) -> Finding:
    node = refusal.node
    message = f"{node.label}{node.line} keeps the sizes of the exporter's example: it {refusal.why}"
    examples = baked.examples()
    point = examples[0].point if examples else {}
    ranges = {name: Range(max(1, size // 2), size, size * 2) for name, size in point.items()}
    command = export_command(model.inputs, ranges, model.path.name)
    fix = f"Export it again with what fixes no size, from its Python: {command}"
    return dataclasses.replace(rule.finding(message, node.location), fix=fix)
