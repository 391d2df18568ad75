"""Inputs and outputs of a model in other types, by a Cast, or by leaving a quantiser to the caller."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import onnx
from onnx import TensorProto, helper

from trtconv.core.errors import InputError
from trtconv.core.tensor_io import ALL, TensorIo, TensorIos, numbered, place_of, positional
from trtconv.graph.model import OnnxModel

_CODES = {
    "fp32": TensorProto.FLOAT,
    "fp16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
_INTEGERS = frozenset({TensorProto.INT32, TensorProto.INT64})
_BFLOAT16_OPSET = 13


def retype(model: OnnxModel, requests: TensorIos) -> None:
    """Gives inputs and outputs the types that are asked for, and notes what each is to be in `model.io`.

    float32, float16, bfloat16 and uint8 (of an input: numbers 0 to 255) go by a Cast; int8 are the codes of the
    quantiser behind an input, or before an output, which is then left to the caller.

    Args:
        model: The model, as it was loaded; it is changed.
        requests: Names to types; nothing leaves all as it is.

    Raises:
        InputError: There is no such input or output, or it cannot have the type.
    """
    if not requests:
        return
    model.io = _resolved(model, requests)
    graph = model.proto.graph
    outside = [v for v in (*graph.input, *graph.output) if v.name in model.io]
    kinds = {v.name: v.type.tensor_type.elem_type for v in outside}
    casts: dict[str, int] = {}
    for value in outside:
        code = _CODES[model.io[value.name].type]
        if code == kinds[value.name]:
            continue
        if code == TensorProto.INT8:
            _take_codes(model, value)
        else:
            casts[value.name] = code
    _cast(model, casts)


def _resolved(model: OnnxModel, requests: TensorIos) -> dict[str, TensorIo]:
    """Returns what every input and output is to be: its name counts before its number, and that before all."""
    graph = model.proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    ends = {"input": [v for v in graph.input if v.name not in constants], "output": list(graph.output)}
    types: dict[str, TensorIo] = {}
    used: set[str] = set()
    for kind, values in ends.items():
        for index, value in enumerate(values):
            keys = (value.name, numbered(kind, index))
            key = next((key for key in keys if key in requests), None)
            every = requests.get(ALL[kind])
            used |= {ALL[kind]} if every is not None else set()
            if key is not None:
                used.add(key)
                _require(model, value, requests[key], kind)
                types[value.name] = requests[key]
            elif every is not None and _why_not(model, value, every, kind) is None:
                types[value.name] = every
    unknown = [name for name in requests if name not in used]
    if unknown:
        for kind, values in ends.items():
            _require_place(model, unknown[0], kind, len(values))
        names = ", ".join(value.name for values in ends.values() for value in values)
        raise InputError(f"--io: {model.path} has no input or output {unknown[0]!r}", f"It has {names}.")
    return types


def _require_place(model: OnnxModel, name: str, kind: str, count: int) -> None:
    place = place_of(name, kind)
    if place is not None and place >= count:
        raise InputError(
            f"--io {name}: {model.path} has {count} {kind}{'' if count == 1 else 's'}, which count from 0",
            f"{positional(kind)} lists one format for each, in the model's order, or one for all.",
        )


def _require(model: OnnxModel, value: onnx.ValueInfoProto, io: TensorIo, kind: str) -> None:
    why = _why_not(model, value, io, kind)
    if why is not None:
        raise InputError(f"--io: {kind} {value.name!r} cannot be {io.type}: {why}", "Choose another type.")


def _why_not(model: OnnxModel, value: onnx.ValueInfoProto, io: TensorIo, kind: str) -> str | None:
    code, own = _CODES[io.type], value.type.tensor_type.elem_type
    if code == own:
        return None
    if kind == "output" and value.name not in model.main.producers:
        return "no node makes it"
    if kind == "input" and value.name in model.outputs:
        return "it is returned as it is"
    if code == TensorProto.BFLOAT16 and model.opset < _BFLOAT16_OPSET:
        return f"bfloat16 needs opset {_BFLOAT16_OPSET}, and the model has {model.opset}"
    if code == TensorProto.INT8 and own in _FLOATS:
        behind = "no QuantizeLinear with one scale and zero point 0 is all that reads it"
        before = "no DequantizeLinear with one scale and zero point 0 makes it for the output alone"
        return None if _quantisers(model, value) else (behind if kind == "input" else before)
    if (code in _FLOATS and own in _FLOATS) or (code in _INTEGERS and own in _INTEGERS):
        return None
    if code == TensorProto.UINT8 and own in _FLOATS:
        return None if kind == "input" else "numbers beyond 0 to 255 would be lost"
    return f"it is {TensorProto.DataType.Name(own).lower()}"


def _quantisers(model: OnnxModel, value: onnx.ValueInfoProto) -> list[onnx.NodeProto]:
    """Returns the quantisers behind an input, or the dequantiser before an output; nothing where there is more."""
    graph, name = model.proto.graph, value.name
    inner = any(name in node.input for scope in model.scopes[1:] for node in scope.graph.node)
    readers = [node for node in graph.node if name in node.input]
    if any(entry is value for entry in graph.input):
        plain = all(node.op_type == "QuantizeLinear" and node.input[0] == name for node in readers)
        alike = len({tuple(node.input[1:]) for node in readers}) == 1
        fits = plain and alike and not inner
        return [node for node in readers if fits and _is_int8(model, node)]
    makers = [node for node in graph.node if name in node.output and node.op_type == "DequantizeLinear"]
    return [node for node in makers if not (readers or inner) and _is_int8(model, node)]


def _is_int8(model: OnnxModel, node: onnx.NodeProto) -> bool:
    """Whether a quantiser has one scale, and int8 codes around 0."""
    scope = model.main
    scale = scope.values(node.input[1])
    zero = scope.values(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    return scale is not None and scale.size == 1 and zero is not None and zero.dtype.name == "int8" and not zero.any()


def _take_codes(model: OnnxModel, value: onnx.ValueInfoProto) -> None:
    """Leaves quantisers out: the codes are the input, or the output."""
    graph = model.proto.graph
    nodes, inner = _quantisers(model, value), value.name
    scales = model.main.values(nodes[0].input[1])
    scale = None if scales is None else float(scales.reshape(-1)[0])
    if any(entry is value for entry in graph.input):
        names = {node.output[0]: inner for node in nodes}
    else:
        names = {nodes[0].input[0]: inner}
    rest = [node for node in graph.node if not any(node is quantiser for quantiser in nodes)]
    # Copied first: nodes that are taken out of a graph are no more.
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in rest]
    del graph.node[:]
    graph.node.extend(copies)
    for scope in [part.graph for part in model.scopes]:
        for node in scope.node:
            _replace(node.input, names)
            _replace(node.output, names)
    value.type.tensor_type.elem_type = TensorProto.INT8
    model.io = {**model.io, inner: dataclasses.replace(model.io[inner], scale=scale)}
    model.touch()


def cast_floats(model: OnnxModel, code: int) -> None:
    """Gives all float32 inputs and outputs another type.

    Args:
        model: The model; it is changed.
        code: ONNX's code of the type.
    """
    graph = model.proto.graph
    # An initializer that is returned as it is keeps its type: no node makes it.
    constants = {tensor.name for tensor in graph.initializer}
    ends = [value for value in (*graph.input, *graph.output) if value.name not in constants]
    _cast(model, {v.name: code for v in ends if v.type.tensor_type.elem_type == TensorProto.FLOAT})


def _cast(model: OnnxModel, types: Mapping[str, int]) -> None:
    """Gives inputs and outputs other types, with a Cast from or to the type that the graph goes on with.

    Args:
        model: The model; it is changed.
        types: Name of an input or output to ONNX's code of its new type.
    """
    if not types:
        return
    graph = model.proto.graph
    inputs = [v for v in graph.input if v.name in types]
    names = {v.name: model.fresh_name(f"{v.name}_{_word(v)}") for v in inputs}
    outputs = [v for v in graph.output if v.name in types and v.name not in names]
    names |= {v.name: model.fresh_name(f"{v.name}_{_word(v)}") for v in outputs}
    rename_inside(model, names)
    before = [_cast_node(model, v.name, names[v.name], v.type.tensor_type.elem_type) for v in inputs]
    after = [_cast_node(model, names[v.name], v.name, types[v.name]) for v in outputs]
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (*inputs, *outputs):
        value.type.tensor_type.elem_type = types[value.name]
    model.touch()


def returning(model: OnnxModel, names: Iterable[str]) -> OnnxModel:
    """Returns a copy of a model whose outputs are also these inner tensors, of types that are left to inference."""
    copy = model.copy()
    copy.proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    copy.touch()
    return copy


def rename_inside(model: OnnxModel, names: Mapping[str, str]) -> None:
    """Gives tensors other names wherever nodes read or make them; inputs and outputs of the model keep theirs."""
    for scope in model.scopes:
        for node in scope.graph.node:
            _replace(node.input, names)
            _replace(node.output, names)
        if scope.parent is not None:
            for value in scope.graph.output:
                value.name = names.get(value.name, value.name)


def _word(value: onnx.ValueInfoProto) -> str:
    code = value.type.tensor_type.elem_type
    return next((word for word, number in _CODES.items() if number == code), "cast")


def _cast_node(model: OnnxModel, name: str, output: str, code: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [name], [output], to=code, name=model.fresh_name(f"{output}_cast"))


def _replace(names: Any, by: Mapping[str, str]) -> None:
    for index, name in enumerate(names):
        if name in by:
            names[index] = by[name]
