"""Outputs that a graph declares as another type than the node has that makes them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import ElementKinds, Scope
from trtconv.graph.types import ONNX_DOMAINS


def misdeclared_types(model: OnnxModel) -> Mapping[str, tuple[int, int]]:
    """Returns the outputs of a model whose declared element type is not that of the node that makes them.

    Args:
        model: The model; outputs of which nobody can say a type are left out.

    Returns:
        By name: the type that is declared, the type that the operator makes.
    """
    scope, types, element_types = model.main, {}, model.whole.element_types
    for value in model.proto.graph.output:
        index, declared = scope.producers.get(value.name), value.type.tensor_type.elem_type
        kind = (
            0 if index is None or not declared else _result_type(scope, index, value.name, element_types, model.opset)
        )
        if kind and kind != declared:
            types[value.name] = (declared, kind)
    return types


def _result_type(scope: Scope, index: int, name: str, types: ElementKinds, opset: int) -> int:
    """Returns the element type that a node's operator makes; 0 where it does not say."""
    node = scope.columns.nodes[index]
    if scope.columns.domains[index] not in ONNX_DOMAINS or any(attribute.HasField("g") for attribute in node.attribute):
        return 0
    try:
        schema = onnx.defs.get_schema(node.op_type, opset)
        # Without their sizes, which may contradict each other.
        inputs = {source: onnx.helper.make_tensor_type_proto(types[source], None) for source in node.input if source}
        results = onnx.shape_inference.infer_node_outputs(
            schema, node, inputs, opset_imports=[onnx.helper.make_opsetid("", opset)]
        )
    except Exception:
        # Where an input's type is not known, or the node is wrong in another way, for which others have words.
        return 0
    result = results.get(name)
    return 0 if result is None else int(result.tensor_type.elem_type)
