"""What ONNX itself says an operator is: its function body, written out for one node."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import onnx
from onnx import defs

from trtconv.graph.scope import Scope
from trtconv.graph.walk import bodies

_PREVIEW = "ai.onnx.preview"
BODY_DOMAINS = ("", "ai.onnx", _PREVIEW)


def body_of(scope: Scope, node: onnx.NodeProto, opset: int) -> onnx.FunctionProto | None:
    """Returns ONNX's definition of a node by other operators.

    Args:
        scope: The graph that it is in; some definitions depend on the types of the inputs.
        node: The node.
        opset: The model's opset.

    Returns:
        The function; None where ONNX has none at this opset, or what it depends on is not known.
    """
    try:
        version = 1 if node.domain == _PREVIEW else opset
        schema = defs.get_schema(node.op_type, version, node.domain)
    except defs.SchemaError:
        return None
    definition = b""
    # Whatever ONNX raises over a stranger's node means one thing here: it has no definition of it.
    try:
        if schema.has_context_dependent_function:
            versions = [number for number in schema.context_dependent_function_opset_versions if number <= opset]
            types = [_type_of(scope, name) for name in node.input]
            definition = schema.get_context_dependent_function_with_opset_version(
                max(versions, default=opset), node.SerializeToString(), types
            )
        elif schema.has_function:
            versions = [number for number in schema.function_opset_versions if number <= opset]
            definition = schema.get_function_with_opset_version(max(versions, default=opset))
    except Exception:
        return None
    function = onnx.FunctionProto.FromString(definition) if definition else None
    if function is None or not function.node:
        return None
    if node.op_type == "AffineGrid":
        _squeeze_rows(function)
    return function


def _squeeze_rows(function: onnx.FunctionProto) -> None:
    """Names the axis of the rows that ONNX's AffineGrid squeezes: with none, a batch of one goes too, and the rank of
    what comes out, which TensorRT fixes, is that of the batch."""
    branches = [attribute.g for node in function.node for attribute in node.attribute if attribute.HasField("g")]
    for branch in branches:
        for node in branch.node:
            if node.op_type == "Squeeze" and len(node.input) == 1:
                node.input.append("one_1d")


def _type_of(scope: Scope, name: str) -> bytes:
    """Returns what is known of a tensor's type, serialized."""
    proto = onnx.TypeProto()
    kind = scope.constant(name)
    code = kind.data_type if kind is not None else _inferred(scope, name)
    if name and code:
        proto.tensor_type.elem_type = code
        shape = scope.shape(name)
        for size in shape or ():
            dim = proto.tensor_type.shape.dim.add()
            if size is not None:
                dim.dim_value = size
        if shape == ():
            proto.tensor_type.shape.SetInParent()
    data: bytes = proto.SerializeToString()
    return data


def _inferred(scope: Scope, name: str) -> int:
    code = scope.types.get(name, 0)
    return code if code or scope.parent is None else _inferred(scope.parent, name)


def written_out(
    function: onnx.FunctionProto, node: onnx.NodeProto, fresh: Callable[[str], str]
) -> list[onnx.NodeProto]:
    """Returns the nodes of a function with the inputs, outputs and attributes of one call.

    Args:
        function: ONNX's definition of an operator.
        node: The node of that operator.
        fresh: Returns a name that is not taken.
    """
    names = {"": ""}
    for slot, name in enumerate(function.input):
        names[name] = node.input[slot] if slot < len(node.input) else ""
    return _Call(function, node, fresh).write(function.node, names)


def renamed(
    branch: onnx.GraphProto,
    node: onnx.NodeProto,
    fresh: Callable[[str], str],
    inputs: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Returns the nodes and constants of a branch, or body, as they stand in the place of its node.

    Args:
        branch: The branch that is taken, or the body.
        node: The If, or one step of a Loop.
        fresh: Returns a name that is not taken.
        inputs: The inputs of a body, to what they are.
    """
    function = onnx.FunctionProto(output=[value.name for value in branch.output])
    call = _Call(function, onnx.NodeProto(name=node.name, op_type=node.op_type, output=node.output), fresh)
    names = {"": "", **inputs}
    constants = []
    for tensor in branch.initializer:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        names[tensor.name] = copy.name = call.fresh(tensor.name)
        constants.append(copy)
    nodes = call.write(branch.node, names)
    ready = {name for maker in nodes for name in maker.output}
    for value, output in zip(branch.output, node.output, strict=True):
        # A branch may hand on what it does not make itself.
        if output and output not in ready:
            source = names.get(value.name, value.name)
            nodes.append(onnx.helper.make_node("Identity", [source], [output], name=call.fresh("Identity")))
    return nodes, constants


class _Call:
    """One call of a function, whose nodes are written with names of their own."""

    def __init__(self, function: onnx.FunctionProto, node: onnx.NodeProto, fresh: Callable[[str], str]) -> None:
        stem = node.name or next(filter(None, node.output), node.op_type)
        self.fresh: Callable[[str], str] = lambda name: fresh(f"{stem}/{name}")
        self._outputs = dict(zip(function.output, node.output, strict=False))
        self._attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        self._attributes |= {**_defaults(node), **{attribute.name: attribute for attribute in node.attribute}}

    def write(self, nodes: Iterable[onnx.NodeProto], names: dict[str, str]) -> list[onnx.NodeProto]:
        """Returns copies of nodes; `names`, from the function's to the graph's, learns what they make."""
        copies = []
        for node in nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = self.fresh(node.name or node.op_type)
            copy.input[:] = [names.get(name, name) for name in node.input]
            for name in filter(None, node.output):
                names[name] = self._outputs.get(name) or self.fresh(name)
            copy.output[:] = [names[name] if name else "" for name in node.output]
            _fill_in(copy, self._attributes)
            for body in itertools.chain.from_iterable(map(bodies, copy.attribute)):
                self._write_body(body, dict(names))
            copies.append(copy)
        return copies

    def _write_body(self, body: onnx.GraphProto, names: dict[str, str]) -> None:
        for value in (*body.input, *body.initializer):
            names[value.name] = value.name = self.fresh(value.name)
        nodes = self.write(body.node, names)
        del body.node[:]
        body.node.extend(nodes)
        for value in body.output:
            value.name = names.get(value.name, value.name)


def _defaults(node: onnx.NodeProto) -> Mapping[str, onnx.AttributeProto]:
    schema = defs.get_schema(node.op_type, 1 if node.domain == _PREVIEW else defs.onnx_opset_version(), node.domain)
    return {
        name: attribute.default_value for name, attribute in schema.attributes.items() if attribute.default_value.name
    }


def _fill_in(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    """Writes the attributes of the call where a node of the function refers to them."""
    result = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            source = attributes.get(attribute.ref_attr_name)
            if source is None:
                continue
            name = attribute.name
            attribute = onnx.AttributeProto.FromString(source.SerializeToString())
            attribute.name = name
        result.append(onnx.AttributeProto.FromString(attribute.SerializeToString()))
    del node.attribute[:]
    node.attribute.extend(result)
