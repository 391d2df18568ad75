"""Inputs and outputs that are there by an empty name alone."""

from __future__ import annotations

import onnx
from onnx import defs

from trtconv.core.documents.rewrite import Edit
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.patch import Patch, close_patches
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.passes.base import Pass, PassResult

_READ_AS_LEFT_OUT = frozenset({"Pad", "LSTM", "GRU", "RNN", "NonMaxSuppression"})
"""Operators whose empty inputs every parser reads as left out (onnx-tensorrt 8.6, run on RTX 1.7): exporters write them
so, and a network that needs no other pass is built while its model is looked at."""


class SettleEmptyNames(Pass):
    """Leaves out optional inputs and outputs with empty names where none follows, and names those that must be there.

    By an empty name a file says that an optional input is not there, or that nobody reads an output. TensorRT's parser
    counts names: it refuses a Conv, a Gemm or a Slice with an empty one in the end, and a TopK or a Split of which one
    output goes by none.

    Before:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,4] x, float[4,3] w) => (float[2,3] y) { y = Gemm (x, w, "") }
    After:
        <ir_version: 8, opset_import: ["": 17]>
        g (float[2,4] x, float[4,3] w) => (float[2,3] y) { y = Gemm (x, w) }
    """

    name = "settle-empty-names"

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return any(_sites(scope) for scope in model.scopes)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        edits: list[Edit] = []
        patches = []
        for scope in model.scopes:
            patch = Patch(model, scope)
            for index in _sites(scope):
                node = onnx.NodeProto()
                node.CopyFrom(scope.columns.nodes[index])
                what = _settle(node, model)
                if what:
                    patch.replace(index, [node])
                    edits.append(Edit(self.name, node.name or str(scope.location(index)), what))
            patches.append(patch)
        close_patches(patches)
        return PassResult(tuple(edits))


def _sites(scope: Scope) -> list[int]:
    columns = scope.columns
    rows = zip(columns.ops, columns.inputs, columns.outputs, columns.domains, strict=True)
    return [
        index
        for index, (op, inputs, outputs, domain) in enumerate(rows)
        if ("" in outputs or (inputs and not inputs[-1] and op not in _READ_AS_LEFT_OUT)) and domain in ONNX_DOMAINS
    ]


def _settle(node: onnx.NodeProto, model: OnnxModel) -> str:
    """Settles the empty names of a node; returns what was done."""
    try:
        schema = defs.get_schema(node.op_type, model.opset)
    except defs.SchemaError:
        return ""
    inputs, outputs = list(node.input), list(node.output)
    if node.op_type not in _READ_AS_LEFT_OUT:
        _drop_last(inputs, schema.min_input)
    for slot, name in enumerate(outputs):
        if not name and not _is_optional(schema, slot):
            outputs[slot] = model.fresh_name(f"{node.name or node.op_type}_{slot}")
    _drop_last(outputs, schema.min_output)
    acts = {
        "empty inputs left out": len(inputs) < len(node.input),
        "outputs that nobody reads left out": len(outputs) < len(node.output),
        "outputs that nobody reads named": not set(outputs) <= set(node.output),
    }
    node.input[:], node.output[:] = inputs, outputs
    return ", ".join(act for act, happens in acts.items() if happens)


def _drop_last(names: list[str], least: int) -> None:
    while len(names) > least and not names[-1]:
        names.pop()


def _is_optional(schema: defs.OpSchema, slot: int) -> bool:
    parameter = schema.outputs[min(slot, len(schema.outputs) - 1)]
    return bool(parameter.option == defs.OpSchema.FormalParameterOption.Optional)
