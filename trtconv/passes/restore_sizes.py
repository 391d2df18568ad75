"""Replaces sizes that an exporter baked into a model by what they were computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.target import Target
from trtconv.graph.editor import Field
from trtconv.graph.model import OnnxModel
from trtconv.passes.base import Pass, PassResult

if TYPE_CHECKING:
    from trtconv.shapes.traced.repairs import ReshapeTarget, Scaling, Shuffle, Unrepaired
    from trtconv.shapes.traced.search import Baked

_SPARE_ROUNDS = 64
"""Repairing one node can lay open the next: a chain takes a round a node, and seldom a second one."""


class _BakedPass(Pass):
    """A pass over what `Baked` finds in the main graph, repeated until it finds nothing more.

    Attributes:
        ops: Operators that the field is opened for.
    """

    frees_sizes = True
    ops: ClassVar[frozenset[str]]

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return not self.ops.isdisjoint(model.main.by_op)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        # Loaded only here, with all that knows of sizes: most networks have none of these operators.
        from trtconv.shapes.traced.search import baked_in

        edits: list[Edit] = []
        skips: list[Skip] = []
        nodes_of_ops = sum(len(model.main.by_op.get(op, ())) for op in self.ops)
        for _ in range(_SPARE_ROUNDS + nodes_of_ops):
            baked = baked_in(model)
            sites = self.find(baked, model.opset)
            if not sites:
                refusals = (refusal for refusal in baked.refusals() if self.tells(refusal))
                skips = [Skip(self.name, refusal.node.name, refusal.why) for refusal in refusals]
                break
            field = Field(model, model.main, self.ops)
            nodes = {field.index(node): node for node in field.graph.nodes}
            for site in sites:
                what = self.repair(field, nodes, site) + site.node.line
                edits.append(Edit(self.name, site.node.name, what))
            field.close()
        return PassResult(tuple(edits), tuple(skips))

    def find(self, baked: Baked, opset: int) -> Sequence[Any]:
        """Returns what there is to repair."""
        raise NotImplementedError

    def tells(self, refusal: Unrepaired) -> bool:
        """Whether it is this pass that says why nothing was repaired."""
        return False

    def repair(self, field: Field, nodes: dict[int, gs.Node], what: Any) -> str:
        """Repairs one of them; returns what was done."""
        raise NotImplementedError


class RestorePixelShuffle(_BakedPass):
    """Turns a pixel shuffle with baked sizes (Reshape, Transpose, Reshape) into DepthToSpace or SpaceToDepth.

    PyTorch's unshuffle orders channels before blocks, SpaceToDepth after them: a Gather of the channels follows there.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,8,h,w] x) => (float[1,2,a,b] y) <int64[6] s = {1,2,2,2,16,16}, int64[4] t = {1,2,32,32}> {
            p = Reshape (x, s)
            q = Transpose <perm = [0,1,4,2,5,3]> (p)
            y = Reshape (q, t)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 8,h,w] x) => (float[1, 2,a,b] y) {
          y = DepthToSpace <blocksize = 2, mode = "CRD"> (x)
        }
    """

    name = "restore-pixel-shuffle"
    fixes = ("TC211",)
    ops = frozenset({"Reshape"})

    def find(self, baked: Baked, opset: int) -> Sequence[Shuffle]:
        # DepthToSpace has a mode from opset 11 on; before, it is DCR.
        return [s for s in baked.shuffles() if opset >= 11 or s.mode != "CRD"]

    def repair(self, field: Field, nodes: dict[int, gs.Node], what: Shuffle) -> str:
        first, turn, last = (nodes[index] for index in what.nodes)
        source, output, name = first.inputs[0], last.outputs[0], last.name or what.op
        last.outputs.clear()
        attrs: dict[str, object] = {"blocksize": what.block}
        if what.mode in ("CRD", "DCR") and field.model.opset >= 11:
            attrs["mode"] = what.mode
        if what.mode == "torch":
            inner = field.node(what.op, f"{name}/{what.op}", [source], f"{name}.{what.op}", **attrs)
            order = np.arange(what.block**2 * what.channels).reshape(-1, what.channels).T.ravel()
            indices = field.constant(f"{name}.channels", order.astype(np.int64))
            replacement = [inner, field.node("Gather", f"{name}/Gather", [inner.outputs[0], indices], output, axis=1)]
        else:
            replacement = [field.node(what.op, f"{name}/{what.op}", [source], output, **attrs)]
        field.replace(first, [])
        field.replace(turn, [])
        field.replace(last, replacement)
        return f"Reshape, Transpose and Reshape with constant sizes are now {what.op} of block {what.block}"


class RestoreResizeScales(_BakedPass):
    """Turns the baked sizes of a Resize into the scales that they were computed with.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,h,w] x) => (float[1,1,h,w] y) <int64[4] s = {1,1,32,32}> {
            a = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)
            b = Resize <mode = "nearest"> (a, , , s)
            y = Add (b, x)
        }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 1,h,w] x) => (float[1, 1,h,w] y)
        <float[4] scales = {1, 1, 2, 2}>
        {
          a = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
          b = Resize <mode = "nearest"> (a, "", scales)
          y = Add (b, x)
        }
    """

    name = "restore-resize-scales"
    fixes = ("TC212",)
    ops = frozenset({"Resize"})

    def find(self, baked: Baked, opset: int) -> Sequence[Scaling]:
        return baked.scalings() if opset >= 11 else []

    def tells(self, refusal: Unrepaired) -> bool:
        return refusal.node.op == "Resize"

    def repair(self, field: Field, nodes: dict[int, gs.Node], what: Scaling) -> str:
        node = nodes[what.index]
        scales = field.constant(f"{node.name or 'Resize'}.scales", np.array(what.scales, np.float32))
        inputs = list(node.inputs)[:2]
        node.inputs = [*inputs, *(gs.Variable.empty() for _ in range(2 - len(inputs))), scales]
        field.replace(node, [node])
        return f"sizes {list(what.sizes)} are now scales {[f'{s:g}' for s in what.scales]}"


class RestoreReshapeTarget(_BakedPass):
    """Turns baked sizes in the target of a Reshape into 0, -1 or sizes that are read where they come from.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n,4,h,w] x) => (float[n,4,l] y) <int64[3] s = {1,4,1024}> { y = Reshape (x, s) }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[n, 4,h,w] x) => (float[n, 4,l] y)
        <int64[3] target = {0, 4, -1}>
        {
          y = Reshape (x, target)
        }
    """

    name = "restore-reshape-target"
    fixes = ("TC213",)
    ops = frozenset({"Reshape"})

    def find(self, baked: Baked, opset: int) -> Sequence[ReshapeTarget]:
        return baked.targets() if opset >= 5 else []

    def tells(self, refusal: Unrepaired) -> bool:
        return refusal.node.op != "Resize"

    def repair(self, field: Field, nodes: dict[int, gs.Node], what: ReshapeTarget) -> str:
        node = nodes[what.index]
        new_nodes: list[gs.Node] = []
        node.inputs[1] = _target(field, node, what, new_nodes)
        field.replace(node, [*new_nodes, node])
        return "target {} is now {}".format(*what.texts)


def _target(field: Field, node: gs.Node, what: ReshapeTarget, new_nodes: list[gs.Node]) -> gs.Tensor:
    name = node.name or "Reshape"
    if all(isinstance(entry, int) for entry in what.new):
        return field.constant(f"{name}.target", np.array(what.new, np.int64))
    parts: list[gs.Tensor] = []
    for position, entry in enumerate(what.new):
        if isinstance(entry, int):
            parts.append(field.constant(f"{name}.size", np.array([entry], np.int64)))
            continue
        sizes, axis = node.inputs[1], position
        if entry is not None:
            shape = field.node("Shape", f"{name}/Shape", [field.tensor(entry[0])], f"{name}.shape")
            new_nodes.append(shape)
            sizes, axis = shape.outputs[0], entry[1]
        index = field.constant(f"{name}.axis", np.array([axis], np.int64))
        new_nodes.append(field.node("Gather", f"{name}/Gather", [sizes, index], f"{name}.size", axis=0))
        parts.append(new_nodes[-1].outputs[0])
    whole = field.node("Concat", f"{name}/Concat", parts, f"{name}.target", axis=0)
    new_nodes.append(whole)
    return whole.outputs[0]
