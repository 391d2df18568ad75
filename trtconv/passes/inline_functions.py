"""Inlines the model-local functions that passes have to see into, or that a parser misreads."""

from __future__ import annotations

from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.target import Target
from trtconv.graph.functions import UnsupportedFunctions, functions_passing_on
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import CONCERNED
from trtconv.passes.base import Pass, PassResult


class InlineDeconvFunctions(Pass):
    """Inlines model-local functions that hold a ConvTranspose, a quantiser or an operator on integers, or nest.

    Inside a function a weight or a scale is an argument; inlined, it is the constant that the caller gave, and the
    other passes can work on it. Those too that call another function with an attribute of their own: TensorRT's parser
    gives the inner one another value. Done by ONNX's own inliner.

    Before:
        <ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[1,1,4] x) => (float[1,1,8] y) <float[1,1,2] w = {1, 2}> { y = local.up (x, w) }
        <domain: "local", opset_import: ["": 17]>
        up (x, w) => (y) { y = ConvTranspose <strides = [2]> (x, w) }
    After:
        <ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[1, 1, 4] x) => (float[1, 1, 8] y)
        <float[1, 1, 2] w = {1, 2}>
        {
          y = ConvTranspose <strides = [2]> (x, w)
        }
    """

    name = "inline-deconv-functions"

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        return bool(model.proto.functions)

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        try:
            names = model.inline_functions_with(*CONCERNED)
            names += model.inline_functions_among(functions_passing_on(model.proto.functions))
        except UnsupportedFunctions as error:
            return PassResult(skipped=(Skip(self.name, "model-local functions", str(error)),))
        return PassResult(tuple(Edit(self.name, name, "function inlined") for name in names))
