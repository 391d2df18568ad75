"""The same change made to the ONNX model that was parsed, where there is one: a weight, an attribute, an operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork

_WEIGHTS = ("kernel", "bias", "weights")
_OPERATORS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("ELEMENTWISE", "op"): {
        "SUM": "Add", "SUB": "Sub", "PROD": "Mul", "DIV": "Div", "MAX": "Max", "MIN": "Min", "POW": "Pow",
        "AND": "And", "OR": "Or", "XOR": "Xor", "EQUAL": "Equal", "LESS": "Less", "GREATER": "Greater",
    },
    ("UNARY", "op"): {
        "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "RECIP": "Reciprocal", "ABS": "Abs", "NEG": "Neg", "SIN": "Sin",
        "COS": "Cos", "TAN": "Tan", "CEIL": "Ceil", "FLOOR": "Floor", "ERF": "Erf", "SIGN": "Sign", "ROUND": "Round",
    },
    ("REDUCE", "op"): {
        "SUM": "ReduceSum", "PROD": "ReduceProd", "MAX": "ReduceMax", "MIN": "ReduceMin", "AVG": "ReduceMean",
    },
    ("ACTIVATION", "type"): {"RELU": "Relu", "SIGMOID": "Sigmoid", "TANH": "Tanh", "SOFTSIGN": "Softsign"},
}  # fmt: skip
"""Attributes that are operators in ONNX, without attributes of their own."""
_CONV = {"stride_nd": "strides", "dilation_nd": "dilations", "num_groups": "group"}
_ATTRIBUTES: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "CONVOLUTION": (("Conv",), _CONV),
    "DECONVOLUTION": (("ConvTranspose",), _CONV),
    "POOLING": (("MaxPool", "AveragePool"), {"stride_nd": "strides", "window_size_nd": "kernel_shape"}),
    "CONCATENATION": (("Concat",), {"axis": "axis"}),
    "GATHER": (("Gather",), {"axis": "axis"}),
    "NORMALIZATION": (("LayerNormalization", "InstanceNormalization"), {"epsilon": "epsilon"}),
    "LRN": (("LRN",), {"alpha": "alpha", "beta": "beta", "k": "bias", "window_size": "size"}),
    "SOFTMAX": (("Softmax",), {"axes": "axis"}),
    "SHUFFLE": (("Transpose",), {"first_transpose": "perm", "second_transpose": "perm"}),
    "EINSUM": (("Einsum",), {"equation": "equation"}),
}


def twin(model: bytes, before: ReadNetwork, after: ReadNetwork, index: int) -> bytes | None:
    """Returns the model with a layer's change made to it; None where it has no such place.

    Args:
        model: What was parsed, serialized.
        before: The network.
        after: The network with one layer changed.
        index: Which one.
    """
    proto = onnx.load_model_from_string(model)
    old, new = before.layers[index], after.layers[index]
    changed = [name for name in old.values if not _same(old.values[name], new.values[name])]
    if len(changed) != 1:
        return None
    (name,) = changed
    if name in _WEIGHTS:
        return _weight(proto, old.values[name], new.values[name])
    node = _node(proto, before, old)
    return None if node is None else _attribute(proto, node, (old, new, name), before)


def _same(a: Any, b: Any) -> bool:
    return a.tobytes() == b.tobytes() if isinstance(a, np.ndarray) else bool(a == b)


def _weight(proto: onnx.ModelProto, old: Any, new: Any) -> bytes | None:
    """Returns the model with an initializer that has these bytes replaced, where it is the only one."""
    places = [each for each in proto.graph.initializer if numpy_helper.to_array(each).tobytes() == old.tobytes()]
    if len(places) != 1 or new.size != old.size:
        return None
    (place,) = places
    if sum(list(node.input).count(place.name) for node in proto.graph.node) != 1:
        return None
    place.CopyFrom(numpy_helper.from_array(new.reshape(tuple(place.dims)).astype(old.dtype), place.name))
    return bytes(proto.SerializeToString())


def _node(proto: onnx.ModelProto, network: ReadNetwork, layer: ReadLayer) -> onnx.NodeProto | None:
    """Returns the node that makes what the layer makes, of the same inputs."""
    output = network.tensors[layer.outputs[0]].name
    node = next((each for each in proto.graph.node if output in each.output), None)
    if node is None:
        return None
    names = {network.tensors[number].name for number in layer.inputs if number is not None}
    weights = {each.name for each in proto.graph.initializer}
    return node if {each for each in node.input if each} - weights <= names else None


def _attribute(
    proto: onnx.ModelProto, node: onnx.NodeProto, change: tuple[ReadLayer, ReadLayer, str], network: ReadNetwork
) -> bytes | None:
    old, new, name = change
    operators = _OPERATORS.get((old.kind, name))
    if operators is not None:
        if operators.get(old.values[name]) != node.op_type or new.values[name] not in operators:
            return None
        node.op_type = operators[new.values[name]]
        return bytes(proto.SerializeToString())
    ops, names = _ATTRIBUTES.get(old.kind, ((), {}))
    if node.op_type not in ops or name not in names:
        return None
    value = new.values[name]
    if old.kind == "SHUFFLE":
        rank = len(network.tensors[old.inputs[0] or 0].shape or ())
        if not rank or old.values["reshape_dims"] is not None or list(value[:rank]) == list(range(rank)):
            return None
        if [*old.values["second_transpose"][:rank]] != [*range(rank)] or name == "second_transpose":
            return None
        value = value[:rank]
    if old.kind == "SOFTMAX":
        value = int(value).bit_length() - 1
    made = helper.make_attribute(names[name], value)
    kept = [each for each in node.attribute if each.name != names[name]]
    del node.attribute[:]
    node.attribute.extend([*kept, made])
    return bytes(proto.SerializeToString())
