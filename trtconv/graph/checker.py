"""What a file must be for the rest of trtconv, TensorRT's parser and ONNX Runtime to look at it safely.

ONNX's own checker refuses more (models that TensorRT builds all the same), and accepts some that crash native code.
Here is only what nothing can be made of: each fault ends in an exception, a hang or a crash somewhere further on.
Looks at names, counts and types; never at weights. How deep graphs lie in graphs is limited by protobuf itself.
"""

from __future__ import annotations

import collections
import functools
import graphlib
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto

from trtconv.graph.list_checker import GATES, LISTED, Dims, list_faults, lists_of
from trtconv.graph.nodes import Columns
from trtconv.graph.tensor_checker import BITS, MOST_DIMENSIONS, sparse_faults, tensor_faults
from trtconv.graph.types import KNOWN_DOMAINS, MICROSOFT, ONNX_DOMAINS
from trtconv.graph.walk import operators

_KNOWN_TYPES = frozenset({*BITS, TensorProto.STRING, TensorProto.UNDEFINED})
_PLAIN_KINDS = frozenset({AttributeProto.INTS, AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.FLOATS})
_UNKNOWN: tuple[int, dict[str, int], int] = (0, {}, 0)
_FUSED = {
    **dict.fromkeys(("FastGelu", "Gelu", "QuickGelu"), 1),
    **dict.fromkeys(("Attention", "BiasGelu", "FusedConv", "FusedGemm", "FusedMatMul"), 2),
    **dict.fromkeys(
        ("DynamicQuantizeMatMul", "MatMulNBits", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), 3
    ),
    **{"MatMulIntegerToFloat": 4, "MultiHeadAttention": 1, "QAttention": 5, "RotaryEmbedding": 4},
}
"""Operators that ONNX Runtime fuses, to the inputs that each must have."""
_FOREIGN: dict[tuple[str, str], tuple[int, dict[str, int], int]] = {
    **{(MICROSOFT, op): (2, {}, 2) for op in ("QuantizeLinear", "DequantizeLinear")},
    **{(MICROSOFT, op): (least, {}, least) for op, least in _FUSED.items()},
    (MICROSOFT, "EmbedLayerNormalization"): (7, {}, 1),
    # Others that have an activation have a text.
    **{(MICROSOFT, op): (3, {"activation": AttributeProto.INT}, 3) for op in ("GroupNorm", "SkipGroupNorm")},
    # Those of ONNX that are called so have lists.
    (MICROSOFT, "FusedGemm"): (2, dict.fromkeys(("activation_alpha", "activation_beta"), AttributeProto.FLOAT), 2),
}
"""What `_signature` would say of operators of other domains that are read as ONNX's own, or written in them."""
Names = tuple[set[str], ...]
"""The tensors that a graph makes, then those that the graphs around it make."""
MOST_CALLS = 90
"""Functions that call each other in a chain; ONNX gives up at 100."""


def examine(proto: onnx.ModelProto) -> Columns | str:
    """Returns the nodes of the main graph, or the first thing that makes the model unusable.

    Args:
        proto: The model, its external data not loaded.
    """
    texts: list[str] = []
    try:
        main = Columns(proto.graph.node)
        _collect_texts(proto, main, texts)
        "".join(texts).encode()
    except (UnicodeError, TypeError):
        # Some versions of protobuf raise where a text is looked at, others give bytes for it.
        return "a name or text in it is not UTF-8"
    return next(_faults(proto, main), main)


def _faults(proto: onnx.ModelProto, main: Columns) -> Iterator[str]:
    versions = {o.domain: o.version for o in proto.opset_import}
    # The same twice is what skl2onnx writes, and says nothing else.
    for o in proto.opset_import:
        if versions[o.domain] != o.version:
            yield f"it imports versions {o.version} and {versions[o.domain]} of operator set {o.domain or 'ai.onnx'}"
    opset = versions.get("", versions.get("ai.onnx", 0))
    yield from _function_faults(proto)
    yield from _graph_faults(proto.graph, main, (), opset)
    for function in proto.functions:
        own = {o.domain: o.version for o in function.opset_import}
        version = own.get("", own.get("ai.onnx", opset))
        columns = Columns(function.node)
        yield from _node_faults(columns, version, in_function=True)
        yield from _list_faults(columns)
        yield from _order_faults(columns, set(function.input))
        names = set(itertools.chain(function.input, *columns.outputs))
        yield from _reading_faults(columns, (names,))
        for name in function.output:
            if name not in names:
                yield f"nothing makes the output {name!r} of function {function.name!r}"
        for _, _, body in columns.bodies():
            yield from _graph_faults(body, Columns(body.node), (names,), version, in_function=True)


def _collect_texts(proto: onnx.ModelProto, main: Columns, texts: list[str]) -> None:
    """Collects every text of a model that trtconv or the libraries behind it look at."""
    texts += [proto.producer_name, proto.producer_version, proto.domain, proto.doc_string]
    for entry in proto.metadata_props:
        texts += [entry.key, entry.value]
    for opset in proto.opset_import:
        texts.append(opset.domain)
    for function in proto.functions:
        texts += [function.name, function.domain, *function.input, *function.output, *function.attribute]
        _collect_node_texts(Columns(function.node), texts)
    _collect_graph_texts(proto.graph, main, texts)


def _collect_graph_texts(graph: onnx.GraphProto, columns: Columns, texts: list[str]) -> None:
    texts += [graph.name, graph.doc_string]
    for value in (*graph.input, *graph.output, *graph.value_info):
        texts += [value.name, value.doc_string]
        texts += [dim.dim_param for dim in value.type.tensor_type.shape.dim]
    for tensor in graph.initializer:
        texts.append(tensor.name)
        if entries := tensor.external_data:
            texts += itertools.chain.from_iterable((entry.key, entry.value) for entry in entries)
    _collect_node_texts(columns, texts)


def _collect_node_texts(columns: Columns, texts: list[str]) -> None:
    texts += itertools.chain(columns.names, columns.ops, columns.domains, *columns.inputs, *columns.outputs)
    texts += [node.doc_string for node in columns.nodes]
    texts += [attribute.name for attributes in columns.attributes for attribute in attributes]
    # Older versions of onnx have none.
    if columns.nodes and hasattr(columns.nodes[0], "metadata_props"):
        # Most have no entries, which is seen in a fifth of the time that it takes to find none.
        entries = [entry for node in columns.nodes if (properties := node.metadata_props) for entry in properties]
        texts += itertools.chain.from_iterable((entry.key, entry.value) for entry in entries)
    for _, _, body in columns.bodies():
        _collect_graph_texts(body, Columns(body.node), texts)


def _function_faults(proto: onnx.ModelProto) -> Iterator[str]:
    """Finds functions that call themselves, directly or through others."""
    if not proto.functions:
        return
    keys = {(f.domain, f.name) for f in proto.functions}
    if len(keys) < len(proto.functions):
        yield "it has two functions of the same name"
    calls = {(f.domain, f.name): operators(f.node) & keys for f in proto.functions}
    depths: dict[tuple[str, str], int] = {}
    try:
        for key in graphlib.TopologicalSorter(calls).static_order():
            depths[key] = 1 + max((depths[called] for called in calls[key]), default=0)
    except graphlib.CycleError as error:
        yield f"function {error.args[1][0][1]!r} calls itself"
        return
    deepest = max(depths.values())
    if deepest > MOST_CALLS:
        yield f"its functions call each other {deepest} deep, more than {MOST_CALLS}"


def _graph_faults(
    graph: onnx.GraphProto, columns: Columns, outside: Names, opset: int, in_function: bool = False
) -> Iterator[str]:
    sources: set[str] = set()
    weights = [tensor.name for tensor in graph.initializer]
    weights += [sparse.values.name for sparse in graph.sparse_initializer]
    for what, names in (("initializers", weights), ("inputs", [value.name for value in graph.input])):
        if len(set(names)) < len(names):
            yield f"two {what} of a graph have the same name"
        if "" in names:
            yield f"one of the {what} of a graph has no name"
        sources.update(names)
    yield from _value_faults(graph)
    yield from _node_faults(columns, opset, in_function)
    yield from _list_faults(columns, graph)
    yield from _order_faults(columns, sources)
    scopes = (sources.union(*columns.outputs), *outside)
    yield from _reading_faults(columns, scopes)
    for value in graph.output:
        if not _is_known(value.name, scopes):
            yield f"nothing makes the output {value.name!r}"
    for _, _, body in columns.bodies():
        yield from _graph_faults(body, Columns(body.node), scopes, opset, in_function)


def _is_known(name: str, scopes: Names) -> bool:
    return any(name in names for names in scopes)


def _reading_faults(columns: Columns, scopes: Names) -> Iterator[str]:
    """Finds nodes that read what nobody makes: TensorRT's parser falls over some of them."""
    for index, inputs in enumerate(columns.inputs):
        if not scopes[0].issuperset(inputs):
            for name in inputs:
                if name and not _is_known(name, scopes):
                    yield f"{_label(columns.nodes[index])} reads {name!r}, which nothing makes"


def _value_faults(graph: onnx.GraphProto) -> Iterator[str]:
    for tensor in graph.initializer:
        bits = BITS.get(tensor.data_type)
        # Nearly all tensors end here: plain bytes, as many as there should be.
        if bits is not None and not tensor.data_location and tensor.HasField("raw_data"):
            # A list is looked through twice in less time than the protobuf once.
            dims = tensor.dims[:]
            if len(tensor.raw_data) * 8 == math.prod(dims) * bits and min(dims, default=0) >= 0:
                continue
        yield from tensor_faults(tensor)
    for sparse in graph.sparse_initializer:
        yield from sparse_faults(sparse)
    for what, values in (("input", graph.input), ("output", graph.output), ("tensor", graph.value_info)):
        for value in values:
            tensor = value.type.tensor_type
            if tensor.elem_type not in _KNOWN_TYPES:
                yield f"{what} {value.name!r} has the unknown element type {tensor.elem_type}"
            if len(tensor.shape.dim) > MOST_DIMENSIONS:
                yield f"{what} {value.name!r} has {len(tensor.shape.dim)} dimensions, more than {MOST_DIMENSIONS}"


def _order_faults(columns: Columns, sources: set[str]) -> Iterator[str]:
    """Finds tensors that are made twice, and nodes that wait for each other. Any order of the nodes is fine."""
    outputs = [name for name in itertools.chain.from_iterable(columns.outputs) if name]
    produced = set(outputs)
    if len(produced) < len(outputs):
        yield f"two nodes make {collections.Counter(outputs).most_common(1)[0][0]!r}"
    if not produced.isdisjoint(sources):
        yield f"a node makes {min(produced & sources)!r}, which is an input or initializer"
    ready = set(sources)
    waiting: list[int] = []
    for index, inputs in enumerate(columns.inputs):
        if ready.issuperset(inputs) or not any(name in produced and name not in ready for name in inputs):
            ready.update(columns.outputs[index])
        else:
            waiting.append(index)
    if not waiting:
        return
    makers = {name: index for index in waiting for name in columns.outputs[index] if name}
    needs = {index: [makers[name] for name in columns.inputs[index] if name in makers] for index in waiting}
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError:
        yield "nodes wait for each other's results: the graph has a cycle"


def _node_faults(columns: Columns, opset: int, in_function: bool = False) -> Iterator[str]:
    signatures = {op: _signature(op, opset) or _UNKNOWN for op in set(columns.ops)}
    rows = zip(columns.ops, columns.domains, columns.inputs, columns.outputs, columns.attributes, strict=True)
    for index, (op, domain, inputs, outputs, attributes) in enumerate(rows):
        least, types, required = signatures[op] if domain in ONNX_DOMAINS else _FOREIGN.get((domain, op), _UNKNOWN)
        if not op or not any(outputs) or len(inputs) < least or not all(inputs[:required]):
            yield _shape_of_node(columns.nodes[index], least)
        for attribute in attributes:
            kind = attribute.type
            # Most attributes are lists of the numbers that they should be.
            if kind not in _PLAIN_KINDS or types.get(attribute.name) != kind or attribute.ref_attr_name:
                is_plugin = domain not in KNOWN_DOMAINS[2:] and _signature(op, opset) is None
                yield from _attribute_faults(attribute, _label(columns.nodes[index]), types, in_function, is_plugin)
        if len(attributes) > 1 and len({attribute.name for attribute in attributes}) < len(attributes):
            yield f"{_label(columns.nodes[index])} has an attribute twice"


def _list_faults(columns: Columns, graph: onnx.GraphProto | None = None) -> Iterator[str]:
    """Finds lists that do not fit each other, or what the graph states of its inputs and weights."""
    stated: dict[str, Dims] | None = None
    for index, (op, domain, attributes) in enumerate(
        zip(columns.ops, columns.domains, columns.attributes, strict=True)
    ):
        if op not in LISTED or domain not in ONNX_DOMAINS:
            continue
        lists = lists_of(attributes)
        if not lists:
            continue
        if stated is None:
            stated = {} if graph is None else _stated_shapes(graph)
        values = [stated.get(name) for name in columns.inputs[index]]
        direction = b""
        if op in GATES:
            direction = next((attribute.s for attribute in attributes if attribute.name == "direction"), b"")
        for name, fault in list_faults(op, lists, values, len(columns.outputs[index]), direction):
            yield f"{_label(columns.nodes[index])} has an attribute {name!r} {fault}"


def _stated_shapes(graph: onnx.GraphProto) -> dict[str, Dims]:
    """Returns the shapes of the inputs and weights of a graph; what it says of other tensors may be wrong."""
    inputs = ((value.name, value.type.tensor_type) for value in graph.input)
    shapes: dict[str, Dims] = {
        name: [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        for name, tensor in inputs
        if tensor.HasField("shape")
    }
    shapes.update((tensor.name, tensor.dims) for tensor in graph.initializer)
    return shapes


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


def _attribute_faults(
    attribute: onnx.AttributeProto, label: str, types: Mapping[str, int], in_function: bool, is_plugin: bool
) -> Iterator[str]:
    kind = attribute.type
    if attribute.ref_attr_name:
        if not in_function:
            yield f"{label} has an attribute {attribute.name!r} that refers to one of a function, which it is not in"
        return
    schema_kind = types.get(attribute.name)
    # TensorRT's parser looks for some attributes also on operators that do not have them; of plugins it hands on all.
    elsewhere = (kind,) if is_plugin else _attribute_types().get(attribute.name, (kind,))
    expected = (schema_kind,) if schema_kind is not None else elsewhere
    if kind == AttributeProto.UNDEFINED or kind not in expected:
        yield f"{label} has an attribute {attribute.name!r} of the wrong type"
    if attribute.name == "output_padding" and types and schema_kind is None:
        yield f"{label} has an output_padding, which is an attribute of ConvTranspose alone"
    if kind == AttributeProto.STRING and attribute.name == "auto_pad" and not attribute.s.isascii():
        yield f"{label} has an auto_pad that is not text"
    yield from _held_faults(attribute)


def _held_faults(attribute: onnx.AttributeProto) -> Iterator[str]:
    """Finds faults of the tensors that an attribute holds."""
    kind = attribute.type
    if kind == AttributeProto.TENSOR:
        yield from tensor_faults(attribute.t)
    elif kind == AttributeProto.TENSORS:
        for tensor in attribute.tensors:
            yield from tensor_faults(tensor)
    elif kind in (AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS):
        for sparse in attribute.sparse_tensors or (attribute.sparse_tensor,):
            yield from sparse_faults(sparse)


@functools.cache
def _attribute_types() -> dict[str, tuple[int, ...]]:
    """Returns the types that an attribute of some name has in any standard operator."""
    types: dict[str, tuple[int, ...]] = {}
    for schema in onnx.defs.get_all_schemas():
        if schema.domain in ONNX_DOMAINS:
            for name, attribute in schema.attributes.items():
                types[name] = (*types.get(name, ()), attribute.type.value)
    return types


def _schema(op: str, opset: int) -> Any:
    try:
        return onnx.defs.get_schema(op, opset, "")
    except (onnx.defs.SchemaError, TypeError, ValueError):
        return None


def attribute_names(op: str, opset: int) -> frozenset[str] | None:
    """Returns what attributes a standard operator has in an opset; None for an operator that ONNX does not know."""
    signature = _signature(op, opset)
    return None if signature is None else frozenset(signature[1])


@functools.cache
def _signature(op: str, opset: int) -> tuple[int, dict[str, int], int] | None:
    """Returns an operator's least number of inputs, its attributes' types, and how many inputs must have a name."""
    schema = _schema(op, max(1, min(opset, onnx.defs.onnx_opset_version())))
    # TensorRT's parser takes operators also of models whose opset is older than they are.
    schema = schema or _schema(op, onnx.defs.onnx_opset_version())
    if schema is None:
        return None
    types = {name: attribute.type.value for name, attribute in schema.attributes.items()}
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    required = 0
    for parameter in schema.inputs:
        if parameter.option != single:
            break
        required += 1
    return schema.min_input, types, required
