"""What ONNX's inference finds out about types and shapes, and what it gets wrong mended."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import onnx
from onnx.external_data_helper import uses_external_data

from trtconv.graph.deconv import crops, geometry_of
from trtconv.graph.node_order import in_order, is_in_order
from trtconv.graph.propagation import data_can_be_propagated
from trtconv.graph.scope import Inferred, Scope, Whole
from trtconv.graph.shape_twins import with_shape_twins
from trtconv.graph.walk import inner_graphs

_RESHAPES = (("Reshape", 1), ("ConstantOfShape", 0))
"""Operators whose results have as many axes as a list of sizes is long, and the slot of that list: inference says no
rank where it does not know the sizes."""
_MOST_AXES = 64
"""That an array of NumPy has; a list may say that it is of any length."""
_MOST_ROUNDS = 4
"""How often a rank may make the next known."""
_SMALL_MODEL = 1 << 22
"""Bytes of a model whose inference is remembered, with what it has of the model in it."""
_recent: tuple[tuple[bytes, Inferred], ...] = ()
"""What was found out of the last models, by their SHA-256: the proof reads a file again, and asks the same of it."""
SMALL_ELEMENTS = 64
"""Integer tensors up to this size are read from external data at once: shape inference needs their values."""


def infer(whole: Whole, model: Callable[[], onnx.ModelProto], light: Callable[[], bytes]) -> Inferred:
    """Runs ONNX's inference over a model.

    Args:
        whole: Its graphs.
        model: Returns a copy that may be changed, without weights.
        light: Returns the model as bytes, its weights only if they are small.
    """
    global _recent
    data = with_shape_twins(whole, _with_copies(whole, _without_misread_pads(whole, model) or light()))
    # It goes over the nodes once, and knows nothing behind one that stands before what it reads.
    if not all(is_in_order(scope.producers, scope.columns) for scope in whole.scopes):
        data = in_order(data)
    key = hashlib.sha256(data).digest() if len(data) <= _SMALL_MODEL else b""
    for digest, answer in _recent:
        if digest == key:
            return answer
    main = whole.scopes[0]
    inferred = _inferred(data, data_can_be_propagated(main.graph, data, main.columns))
    for _ in range(_MOST_ROUNDS):
        if not _add_ranks(whole, inferred):
            break
        inferred = _inferred(inferred.SerializeToString(), False)
    graphs = [inferred.graph, *(inner_graphs(inferred.graph.node) if len(whole.scopes) > 1 else ())]
    values = tuple([*graph.input, *graph.value_info, *graph.output] for graph in graphs)
    if key:
        _recent = (*_recent[-1:], (key, values))
    return values


def _inferred(data: bytes, propagates: bool) -> onnx.ModelProto:
    """Returns a model with what inference finds out; it gives up with an exception on some that are valid otherwise."""
    for data_prop in (True, False) if propagates else (False,):
        try:
            return onnx.shape_inference.infer_shapes(data, data_prop=data_prop)
        except Exception:
            continue
    return onnx.ModelProto.FromString(data)


def _add_ranks(whole: Whole, inferred: onnx.ModelProto) -> bool:
    """States how many axes a tensor has that is reshaped to a list of known length; returns whether it said any."""
    if not any(scope.positions(op) for scope in whole.scopes for op, _ in _RESHAPES):
        return False
    graphs = [inferred.graph, *(inner_graphs(inferred.graph.node) if len(whole.scopes) > 1 else ())]
    values: dict[str, onnx.TypeProto.Tensor] = {}
    is_more = False
    for scope, graph in zip(whole.scopes, graphs, strict=True):
        # Those of the graphs around it stay known.
        values |= {value.name: value.type.tensor_type for value in (*graph.input, *graph.output, *graph.value_info)}
        for index, slot in ((index, slot) for op, slot in _RESHAPES for index in scope.positions(op)):
            inputs, (output, *_) = scope.columns.inputs[index], scope.columns.outputs[index]
            kind, list_type = values.get(output), values.get(inputs[slot]) if len(inputs) > slot else None
            if kind is None or kind.HasField("shape") or list_type is None:
                continue
            length = list_type.shape.dim[0].dim_value if len(list_type.shape.dim) == 1 else 0
            if 0 < length <= _MOST_AXES:
                kind.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in range(length))
                is_more = True
    return is_more


def _with_copies(whole: Whole, data: bytes) -> bytes:
    """Returns a model whose copies and casts of constants that may be sizes are constants themselves: inference does
    not follow them, and torch's older exporter has one for each further layer that has the same."""
    copies = [
        (scope.position, index, tensor)
        for scope in whole.scopes
        for index in scope.positions("Cast", "Identity")
        if (tensor := _copy_of_sizes(scope, index)) is not None
    ]
    if not copies:
        return data
    copy = onnx.ModelProto.FromString(data)
    twins = [copy.graph, *inner_graphs(copy.graph.node)]
    for position, index, tensor in copies:
        twin = twins[position].node[index]
        twin.op_type = "Constant"
        twin.ClearField("input")
        twin.ClearField("attribute")
        twin.attribute.append(onnx.helper.make_attribute("value", tensor))
    serialized: bytes = copy.SerializeToString()
    return serialized


def _copy_of_sizes(scope: Scope, index: int) -> onnx.TensorProto | None:
    """Returns what a node makes of a constant that may be sizes, by a copy or by a cast of integers; None of others."""
    tensor = scope.initializer(next(iter(scope.columns.inputs[index]), ""))
    if tensor is None or math.prod(tensor.dims) > SMALL_ELEMENTS or uses_external_data(tensor):
        return None
    to = next(
        (attribute.i for attribute in scope.columns.attributes[index] if attribute.name == "to"), tensor.data_type
    )
    if to != onnx.TensorProto.INT64 or tensor.data_type not in (to, onnx.TensorProto.INT32):
        return None
    if tensor.data_type == to:
        return tensor
    return onnx.numpy_helper.from_array(scope.whole.array(tensor).astype(np.int64), tensor.name)


def may_be_sizes(tensor: onnx.TensorProto) -> bool:
    """Whether a constant is one of those whose values shape inference needs."""
    return math.prod(tensor.dims) <= SMALL_ELEMENTS and bool(tensor.data_type == onnx.TensorProto.INT64)


def _without_misread_pads(whole: Whole, model: Callable[[], onnx.ModelProto]) -> bytes | None:
    """Returns a copy with auto_pad SAME_* beside output_padding written as pads; None where there is no such node.

    ONNX's shape inference (1.23) adds the output_padding to the size that SAME asks for. Sizes that the file itself
    states may come from the same inference, so they are left out then.
    """
    places = ((scope, index, _same_pads(scope, index)) for scope, index, _ in whole.nodes("ConvTranspose"))
    wrong = [(scope.position, index, pads) for scope, index, pads in places if pads]
    if not wrong:
        return None
    copy = model()
    twins = [copy.graph, *inner_graphs(copy.graph.node)]
    for position, index, pads in wrong:
        twin = twins[position].node[index]
        rest = [a for a in twin.attribute if a.name not in ("auto_pad", "pads")]
        twin.ClearField("attribute")
        twin.attribute.extend([*rest, onnx.helper.make_attribute("pads", pads)])
    for graph in twins:
        del graph.value_info[:]
    data: bytes = copy.SerializeToString()
    return data


def skeleton(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy whose large initializers are graph inputs: same shapes and types, no weights."""
    copy = onnx.ModelProto()
    copy.ir_version = proto.ir_version
    copy.opset_import.extend(proto.opset_import)
    copy.functions.extend(proto.functions)
    graph, source = copy.graph, proto.graph
    graph.name = source.name
    graph.node.extend(source.node)
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    graph.value_info.extend(source.value_info)
    graph.sparse_initializer.extend(source.sparse_initializer)
    declared = {value.name for value in source.input}
    for tensor in source.initializer:
        if not uses_external_data(tensor) and math.prod(tensor.dims) <= SMALL_ELEMENTS:
            graph.initializer.append(tensor)
        elif tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return copy


def _same_pads(scope: Scope, index: int) -> list[int] | None:
    """Returns the pads that SAME_* beside an output_padding means; None for any other ConvTranspose."""
    node, attributes = scope.columns.nodes[index], scope.columns.attributes[index]
    if not any(a.name == "auto_pad" and a.s.startswith(b"SAME") for a in attributes):
        return None
    attrs = {a.name: onnx.helper.get_attribute_value(a) for a in attributes}
    mode = attrs.get("auto_pad", b"").decode(errors="replace")
    if not mode.startswith("SAME") or not any(attrs.get("output_padding") or ()) or attrs.get("output_shape"):
        return None
    weight = scope.initializer(node.input[1]) if len(node.input) > 1 else None
    geometry = geometry_of({**attrs, "auto_pad": mode}, None if weight is None else tuple(weight.dims))
    window = None if isinstance(geometry, str) else crops(geometry, None)
    if isinstance(geometry, str) or window is None:
        return None
    return [c.begin for c in window] + [c.end + o for c, o in zip(window, geometry.output_padding, strict=True)]
