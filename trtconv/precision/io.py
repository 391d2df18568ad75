"""The inputs and outputs of a model cast to another float type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import helper

from trtconv.graph.model import OnnxModel
from trtconv.precision.schemas import FLOAT, Kind


def cast_interface(model: OnnxModel, kind: Kind) -> None:
    """Gives the float32 inputs and outputs of a model that was cast the lower precision too."""
    graph = model.proto.graph
    given = {tensor.name for tensor in graph.initializer}
    inputs = [v for v in graph.input if v.type.tensor_type.elem_type == FLOAT and v.name not in given]
    names = {value.name: model.fresh_name(f"{value.name}_fp32") for value in inputs}
    # An initializer that is returned as it is keeps its type: no node makes it.
    outputs = [v for v in graph.output if v.type.tensor_type.elem_type == FLOAT and v.name not in {*names, *given}]
    names |= {value.name: model.fresh_name(f"{value.name}_fp32") for value in outputs}
    for scope in model.scopes:
        for node in scope.graph.node:
            _replace(node.input, names)
            _replace(node.output, names)
        if scope.parent is not None:
            for value in scope.graph.output:
                value.name = names.get(value.name, value.name)
    before = [_cast_node(model, v.name, names[v.name], FLOAT) for v in inputs]
    after = [_cast_node(model, names[v.name], v.name, kind.code) for v in outputs]
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (*inputs, *outputs):
        value.type.tensor_type.elem_type = kind.code
    model.touch()


def _cast_node(model: OnnxModel, name: str, made: str, code: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [name], [made], to=code, name=model.fresh_name(f"{made}_cast"))


def _replace(names: Any, by: Mapping[str, str]) -> None:
    for index, name in enumerate(names):
        if name in by:
            names[index] = by[name]
