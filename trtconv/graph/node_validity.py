"""Whether ONNX allows a node as it is, judged by the types and shapes of what it reads."""

from __future__ import annotations

import onnx
import onnx.defs
from onnx import helper

from trtconv.graph.attributes import attribute
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.tensor_checker import nbytes
from trtconv.graph.types import ONNX_DOMAINS, dtype_name
from trtconv.graph.walk import bodies

_SMALL_BYTES = 1 << 12
"""Constants up to this size go along with their values, which may be sizes."""
_LONGEST = 200


def fault_of_node(model: OnnxModel, index: int) -> str:
    """Returns why no runtime can take a node of the main graph; "" where nothing is wrong, or it cannot be told."""
    scope = model.main
    node = scope.columns.nodes[index]
    if any(True for attribute in node.attribute for _ in bodies(attribute)):
        # What is in there reads tensors around it.
        return ""
    return _kernel_fault(scope, node) or _type_fault(model, node) or _inference_fault(model, node)


def _kernel_fault(scope: Scope, node: onnx.NodeProto) -> str:
    """Returns what is wrong with the kernel_shape of a Conv, which ONNX's inference takes unseen."""
    shape = scope.shape(node.input[1]) if node.op_type == "Conv" and len(node.input) > 1 else None
    kernel = attribute(node, "kernel_shape")
    if shape is None or kernel is None or None in shape[2:] or kernel == list(shape[2:]):
        return ""
    return f"its kernel_shape is {kernel}, and that of its weight {list(shape[2:])}"


def _type_fault(model: OnnxModel, node: onnx.NodeProto) -> str:
    """Returns what is wrong with the types of a node's inputs, of which ONNX's inference says nothing."""
    if node.domain not in ONNX_DOMAINS or not onnx.defs.has(node.op_type, model.opset):
        return ""
    schema = onnx.defs.get_schema(node.op_type, model.opset)
    allowed = {entry.type_param_str: frozenset(entry.allowed_type_strs) for entry in schema.type_constraints}
    kinds: dict[str, str] = {}
    for slot, name in enumerate(node.input):
        kind = _kind(model, name)
        if not kind or not schema.inputs:
            continue
        formal = schema.inputs[min(slot, len(schema.inputs) - 1)]
        if f"tensor({kind})" not in allowed.get(formal.type_str, {formal.type_str}):
            return f"its input {formal.name!r} is {kind}, which {node.op_type} of opset {model.opset} does not take"
        if formal.type_str in allowed and formal.is_homogeneous and kinds.setdefault(formal.type_str, kind) != kind:
            return f"its inputs are {kinds[formal.type_str]} and {kind}, and have to be of one type"
    return ""


def _kind(model: OnnxModel, name: str) -> str:
    """Returns the type of a tensor as ONNX writes it, "float16"; "" where it is not known."""
    constant = model.main.constant(name) if name else None
    code = model.main.types.get(name) if constant is None else constant.data_type
    return dtype_name(code) if code else ""


def _inference_fault(model: OnnxModel, node: onnx.NodeProto) -> str:
    graph = helper.make_graph([node], "node", [], [onnx.ValueInfoProto(name=name) for name in node.output if name])
    for name in dict.fromkeys(filter(None, node.input)):
        constant = model.main.constant(name)
        kind = model.main.types.get(name) if constant is None else constant.data_type
        if constant is not None and nbytes(constant) <= _SMALL_BYTES:
            graph.initializer.append(constant)
            graph.initializer[-1].name = name
        elif kind:
            graph.input.append(helper.make_tensor_value_info(name, kind, model.main.shape(name)))
        else:
            return ""
    alone = helper.make_model(graph, opset_imports=list(model.proto.opset_import), ir_version=model.proto.ir_version)
    try:
        onnx.shape_inference.infer_shapes(alone, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        return " ".join(str(error).split())[:_LONGEST]
    except (RuntimeError, ValueError, TypeError):
        # Of what is wrong with the model around it.
        return ""
    return ""
