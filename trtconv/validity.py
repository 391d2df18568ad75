"""What a file must be for the rest of trtconv, TensorRT's parser and ONNX Runtime to look at it safely.

ONNX's own checker refuses more (models that TensorRT builds all the same), and accepts some that crash native code.
Here is only what nothing can be made of: each fault ends in an exception, a hang or a crash somewhere further on.
Looks at names, counts and types; never at weights. How deep graphs lie in graphs is limited by protobuf itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto
from onnx.external_data_helper import uses_external_data

_BITS = {
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 32),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL), 8),
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64, TensorProto.COMPLEX64), 64),
    TensorProto.COMPLEX128: 128,
    **{
        getattr(TensorProto, name): bits
        for name, bits in (
            *((name, 8) for name in ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0")),
            *((name, 4) for name in ("INT4", "UINT4", "FLOAT4E2M1")),
            *((name, 2) for name in ("INT2", "UINT2")),
        )
        # Older versions of onnx lack the newer types.
        if hasattr(TensorProto, name)
    },
}
"""Bits of one element, by element type; strings aside."""
_KNOWN_TYPES = frozenset({*_BITS, TensorProto.STRING, TensorProto.UNDEFINED})
_PLAIN_KINDS = frozenset({AttributeProto.INTS, AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.FLOATS})
_LONGEST_VECTOR = 1 << 16
_TYPED_DATA = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_STANDARD = ("", "ai.onnx")


def complaint(proto: onnx.ModelProto) -> str | None:
    """Returns the first thing that makes a model unusable, or None.

    Args:
        proto: The model, its external data not loaded.
    """
    texts: list[str] = []
    try:
        _collect_texts(proto, texts)
        "".join(texts).encode()
    except (UnicodeError, TypeError):
        # Some versions of protobuf raise where a text is looked at, others give bytes for it.
        return "a name or text in it is not UTF-8"
    return next(_faults(proto), None)


def data_can_be_propagated(graph: onnx.GraphProto) -> bool:
    """Whether ONNX's inference may follow values: it writes down every element of a vector that is computed on."""
    dims = [value.type.tensor_type.shape.dim for value in graph.input]
    return all(len(dim) != 1 or dim[0].dim_value <= _LONGEST_VECTOR for dim in dims)


def nbytes(tensor: onnx.TensorProto) -> int:
    """Returns the bytes that a tensor's values take in raw_data or external data."""
    bits: int = math.prod(tensor.dims) * _BITS.get(tensor.data_type, 0)
    return -(-bits // 8)


def _faults(proto: onnx.ModelProto) -> Iterator[str]:
    if len({o.domain for o in proto.opset_import}) < len(proto.opset_import):
        yield "it imports an operator set twice"
    versions = {o.domain: o.version for o in proto.opset_import}
    opset = versions.get("", versions.get("ai.onnx", 0))
    yield from _function_faults(proto)
    yield from _graph_faults(proto.graph, frozenset(), opset)
    for function in proto.functions:
        own = {o.domain: o.version for o in function.opset_import}
        version = own.get("", own.get("ai.onnx", opset))
        for node in function.node:
            yield from _node_faults(node, version)
        yield from _order_faults(function.node, set(function.input))


def _collect_texts(proto: onnx.ModelProto, texts: list[str]) -> None:
    """Collects every text of a model that trtconv or the libraries behind it look at."""
    texts += [proto.producer_name, proto.producer_version, proto.domain, proto.doc_string]
    for entry in proto.metadata_props:
        texts += [entry.key, entry.value]
    for opset in proto.opset_import:
        texts.append(opset.domain)
    for function in proto.functions:
        texts += [function.name, function.domain, *function.input, *function.output, *function.attribute]
        _collect_node_texts(function.node, texts)
    _collect_graph_texts(proto.graph, texts)


def _collect_graph_texts(graph: onnx.GraphProto, texts: list[str]) -> None:
    texts += [graph.name, graph.doc_string]
    for value in (*graph.input, *graph.output, *graph.value_info):
        texts += [value.name, value.doc_string]
        texts += [dim.dim_param for dim in value.type.tensor_type.shape.dim]
    for tensor in graph.initializer:
        texts.append(tensor.name)
        for entry in tensor.external_data:
            texts += [entry.key, entry.value]
    _collect_node_texts(graph.node, texts)


def _collect_node_texts(nodes: Iterable[onnx.NodeProto], texts: list[str]) -> None:
    for node in nodes:
        texts += [node.name, node.op_type, node.domain, node.doc_string, *node.input, *node.output]
        for entry in getattr(node, "metadata_props", ()):
            texts += [entry.key, entry.value]
        for attribute in node.attribute:
            texts.append(attribute.name)
            if attribute.type == AttributeProto.GRAPH:
                _collect_graph_texts(attribute.g, texts)
            elif attribute.type == AttributeProto.GRAPHS:
                for body in attribute.graphs:
                    _collect_graph_texts(body, texts)


def _function_faults(proto: onnx.ModelProto) -> Iterator[str]:
    """Finds functions that call themselves, directly or through others."""
    known = {(f.domain, f.name) for f in proto.functions}
    if len(known) < len(proto.functions):
        yield "it has two functions of the same name"
    calls = {(f.domain, f.name): _called(f.node) & known for f in proto.functions}
    while calls:
        leaves = [key for key, called in calls.items() if not called & calls.keys()]
        if not leaves:
            yield f"function {next(iter(calls))[1]!r} calls itself"
            return
        for key in leaves:
            del calls[key]


def _called(nodes: Iterable[onnx.NodeProto]) -> set[tuple[str, str]]:
    found = set()
    for node in nodes:
        found.add((node.domain, node.op_type))
        for body in _bodies(node):
            found |= _called(body.node)
    return found


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def _graph_faults(graph: onnx.GraphProto, outside: frozenset[str], opset: int) -> Iterator[str]:
    given: set[str] = set()
    weights = [tensor.name for tensor in graph.initializer]
    weights += [sparse.values.name for sparse in graph.sparse_initializer]
    for what, names in (("initializers", weights), ("inputs", [value.name for value in graph.input])):
        if len(set(names)) < len(names):
            yield f"two {what} of a graph have the same name"
        if "" in names:
            yield f"one of the {what} of a graph has no name"
        given.update(names)
    yield from _value_faults(graph)
    for node in graph.node:
        yield from _node_faults(node, opset)
    yield from _order_faults(graph.node, given)
    seen = outside | given | {name for node in graph.node for name in node.output}
    for value in graph.output:
        if value.name not in seen:
            yield f"nothing makes the output {value.name!r}"
    for node in graph.node:
        for body in _bodies(node):
            yield from _graph_faults(body, seen, opset)


def _value_faults(graph: onnx.GraphProto) -> Iterator[str]:
    for tensor in graph.initializer:
        yield from _tensor_faults(tensor)
    for value in graph.input:
        if value.type.tensor_type.elem_type not in _KNOWN_TYPES:
            yield f"input {value.name!r} has the unknown element type {value.type.tensor_type.elem_type}"


def _order_faults(nodes: Iterable[onnx.NodeProto], given: set[str]) -> Iterator[str]:
    """Finds tensors that are made twice, and nodes that wait for each other. Any order of the nodes is fine."""
    nodes = list(nodes)
    outputs = [name for node in nodes for name in node.output if name]
    produced = set(outputs)
    if len(produced) < len(outputs):
        yield "two nodes make the same tensor"
    if not produced.isdisjoint(given):
        yield f"a node makes {min(produced & given)!r}, which is an input or initializer"
    made = set(given)
    waiting: list[onnx.NodeProto] = []
    for node in nodes:
        if made.issuperset(node.input):
            made.update(node.output)
        elif any(name in produced and name not in made for name in node.input):
            waiting.append(node)
        else:
            made.update(node.output)
    yield from _cycle_faults(waiting, made, produced)


def _cycle_faults(waiting: list[onnx.NodeProto], made: set[str], produced: set[str]) -> Iterator[str]:
    """Takes the nodes that stand before what they read, in the order in which they can run (Kahn's algorithm)."""
    if not waiting:
        return
    missing = {id(node): {n for n in node.input if n in produced and n not in made} for node in waiting}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in waiting:
        for name in missing[id(node)]:
            readers.setdefault(name, []).append(node)
    ready = [node for node in waiting if not missing[id(node)]]
    # What became known after a node was put aside counts as known now.
    for node in ready:
        for output in node.output:
            for reader in readers.get(output, ()):
                missing[id(reader)].discard(output)
                if not missing[id(reader)]:
                    ready.append(reader)
    if len({id(node) for node in ready}) < len(waiting):
        yield "nodes wait for each other's results: the graph has a cycle"


def _node_faults(node: onnx.NodeProto, opset: int) -> Iterator[str]:
    op, attributes = node.op_type, node.attribute
    known = _signature(op, opset) if node.domain in _STANDARD else None
    least, types, named = known if known is not None else (0, {}, 0)
    given = list(node.input)
    if not op or not any(node.output) or len(given) < least or not all(given[:named]):
        yield _shape_of_node(node, least)
    if not attributes:
        return
    label = ""
    if len(attributes) > 1 and len({attribute.name for attribute in attributes}) < len(attributes):
        yield f"{_label(node)} has an attribute twice"
    for attribute in attributes:
        kind = attribute.type
        # Most attributes are lists of the numbers that they should be.
        if kind in _PLAIN_KINDS and types.get(attribute.name) == kind:
            continue
        label = label or _label(node)
        yield from _attribute_faults(attribute, label, types)


def _label(node: onnx.NodeProto) -> str:
    return f"node {node.name!r} ({node.op_type})"


def _shape_of_node(node: onnx.NodeProto, least: int) -> str:
    """Says what of a node's operator, inputs and outputs is wrong."""
    if not node.op_type:
        return f"node {node.name!r} has no operator"
    if not any(node.output):
        return f"{_label(node)} has no output"
    if len(node.input) < least:
        return f"{_label(node)} has {len(node.input)} inputs, not {least} or more"
    return f"{_label(node)} lacks an input that it must have"


def _attribute_faults(attribute: onnx.AttributeProto, label: str, types: dict[str, Any]) -> Iterator[str]:
    kind = attribute.type
    if attribute.ref_attr_name:
        return
    wanted = types.get(attribute.name)
    # TensorRT's parser looks for some attributes also on operators that do not have them.
    expected = (wanted,) if wanted is not None else _attribute_types().get(attribute.name, (kind,))
    if kind == AttributeProto.UNDEFINED or kind not in expected:
        yield f"{label} has an attribute {attribute.name!r} of the wrong type"
    if kind == AttributeProto.TENSOR:
        yield from _tensor_faults(attribute.t)
    elif kind == AttributeProto.TENSORS:
        for tensor in attribute.tensors:
            yield from _tensor_faults(tensor)
    elif kind == AttributeProto.STRING and attribute.name == "auto_pad" and not attribute.s.isascii():
        yield f"{label} has an auto_pad that is no text"


@functools.cache
def _attribute_types() -> dict[str, tuple[int, ...]]:
    """Returns the types that an attribute of some name has in any standard operator."""
    found: dict[str, tuple[int, ...]] = {}
    for schema in onnx.defs.get_all_schemas():
        if schema.domain in _STANDARD:
            for name, attribute in schema.attributes.items():
                found[name] = (*found.get(name, ()), attribute.type.value)
    return found


@functools.cache
def _signature(op: str, opset: int) -> tuple[int, dict[str, int], int] | None:
    """Returns an operator's least number of inputs, its attributes' types, and how many inputs must have a name."""
    try:
        schema = onnx.defs.get_schema(op, max(1, min(opset, onnx.defs.onnx_opset_version())), "")
    except (onnx.defs.SchemaError, TypeError, ValueError):
        return None
    types = {name: attribute.type.value for name, attribute in schema.attributes.items()}
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    named = 0
    for parameter in schema.inputs:
        if parameter.option != single:
            break
        named += 1
    return schema.min_input, types, named


def _tensor_faults(tensor: onnx.TensorProto) -> Iterator[str]:
    dims = tensor.dims
    bits = _BITS.get(tensor.data_type)
    # Nearly all tensors end here.
    inside = tensor.HasField("raw_data") and not tensor.data_location and min(dims, default=0) >= 0
    if inside and bits is not None and len(tensor.raw_data) * 8 == math.prod(dims) * bits:
        return
    label = f"tensor {tensor.name!r}"
    if any(size < 0 for size in dims):
        yield f"{label} has a negative size: {list(dims)}"
        return
    elements = math.prod(tensor.dims)
    if tensor.data_type == TensorProto.STRING:
        if len(tensor.string_data) != elements:
            yield f"{label} holds {len(tensor.string_data)} strings, not {elements}"
        return
    if tensor.data_type not in _BITS:
        yield f"{label} has the unknown element type {tensor.data_type}"
        return
    if uses_external_data(tensor):
        return
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != nbytes(tensor):
            yield f"{label} holds {len(tensor.raw_data)} bytes, not {nbytes(tensor)}"
        return
    yield from _typed_data_faults(tensor, elements, label)


def _typed_data_faults(tensor: onnx.TensorProto, elements: int, label: str) -> Iterator[str]:
    held = sum(len(getattr(tensor, name)) for name in _TYPED_DATA)
    bits = _BITS[tensor.data_type]
    # Types below a byte are packed; complex numbers are two entries each.
    packed = -(-elements * bits // 8) if bits < 8 else elements
    complex_types = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
    wanted = 2 * elements if tensor.data_type in complex_types else packed
    if held not in (wanted, elements):
        yield f"{label} holds {held} values, not {wanted}"
