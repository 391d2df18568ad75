"""Nodes of operators that are not ONNX's: which reference says what one computes, and with which attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.interface import Interface
from trtconv.graph.fitting import fit
from trtconv.graph.light_file import light_model
from trtconv.graph.model import OnnxModel
from trtconv.graph.operators import is_foreign
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import inner_graphs
from trtconv.plugins.known import OF_PARSER
from trtconv.plugins.registry import OperatorReference, find
from trtconv.runtimes.hybrid_bodies import CONTROL
from trtconv.runtimes.tensorrt.readback.records import PluginIdentity, PluginMeaning


class ReferenceFailed(Exception):
    """A reference raised, or does not return what its node has outputs for."""


@frozen
class ForeignNode:
    """A node whose operator a reference knows.

    Args:
        node: The node.
        reference: What it computes.
        attributes: Its attributes, as the reference takes them.
    """

    node: onnx.NodeProto
    reference: OperatorReference
    attributes: Mapping[str, Any]


def foreign_nodes(model: onnx.ModelProto) -> dict[int, ForeignNode]:
    """Returns the nodes of the main graph that a reference computes, by position.

    Raises:
        InputError: A file of references does not run.
    """
    nodes = {}
    verdicts: dict[tuple[str, str], bool] = {}
    for index, node in enumerate(model.graph.node):
        key = (node.domain, node.op_type)
        if key not in verdicts:
            verdicts[key] = is_foreign(model, *key)
        reference = find(*key) if verdicts[key] else None
        if reference is not None:
            nodes[index] = ForeignNode(node, reference, attributes_of(node))
    return nodes


def with_foreign_bodies(model: onnx.ModelProto) -> frozenset[int]:
    """Returns the nodes of the main graph in whose graphs there are nodes that a reference computes, by position."""
    verdicts: dict[tuple[str, str], bool] = {}

    def is_known(node: onnx.NodeProto) -> bool:
        key = (node.domain, node.op_type)
        if key not in verdicts:
            verdicts[key] = is_foreign(model, *key) and find(*key) is not None
        return verdicts[key]

    return frozenset(
        at
        for at, node in enumerate(model.graph.node)
        if node.op_type in CONTROL
        and any(is_known(inner_node) for inner in inner_graphs([node]) for inner_node in inner.node)
    )


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Returns a node's attributes as Python values: numbers, texts, lists of them, arrays."""
    return {attribute.name: _plain(attribute) for attribute in node.attribute if attribute.name not in OF_PARSER}


def _plain(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return list(value) if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else value


def typed_model(path: Path, interface: Interface | None = None, *, light: bool = False) -> OnnxModel:
    """Reads a model, gives it the inputs and outputs that are asked for, and writes what references tell of types.

    Args:
        path: Its file.
        interface: What is asked for.
        light: Whether large weights are to stay in the file where they can, until they are looked at.

    Raises:
        InputError: As `OnnxModel.load`, `fit` and `write_types`.
    """
    model = (light_model if light else OnnxModel.load)(path, hashed=True)
    if interface:
        fit(model, interface)
    return write_types(model)


def write_types(model: OnnxModel) -> OnnxModel:
    """Writes what references tell of types and shapes into a model; does nothing to one of ONNX's operators.

    TensorRT's parsers refuse an output without an element type, and inference stops at an operator that it does not
    know. Sizes are static where they are the same for two sizes of what is dynamic.

    Returns:
        The model itself.

    Raises:
        InputError: A file of references does not run; or one raises, and an output of the model has no type.
    """
    outputs = {value.name: value for value in model.proto.graph.output}
    for index, foreign in foreign_nodes(model.proto).items():
        try:
            tellings = _value_infos(model, foreign)
        except ReferenceFailed as failure:
            if any(name in outputs and not outputs[name].type.tensor_type.elem_type for name in foreign.node.output):
                place, file = model.main.location(index), foreign.reference.file or "trtconv's own"
                raise InputError(
                    f"{model.path}: {place}: {failure} ({file}), so that the type of its output is not known",
                    "Correct the reference, or write the type of the output into the model.",
                ) from failure
            tellings = {}
        for name, info in tellings.items():
            if name not in outputs:
                model.proto.graph.value_info.append(info)
            elif not outputs[name].type.tensor_type.elem_type:
                outputs[name].type.CopyFrom(info.type)
        model.touch()
    for value in model.proto.graph.output:
        kind = None if value.type.tensor_type.elem_type else model.main.types.get(value.name)
        if kind:
            value.type.tensor_type.elem_type = kind
            model.touch()
    return model


def _value_infos(model: OnnxModel, foreign: ForeignNode) -> dict[str, onnx.ValueInfoProto]:
    """Returns what a reference makes of ones: types and shapes by output; empty where it cannot be asked.

    Raises:
        ReferenceFailed: It raised.
    """
    runs = []
    for size in _TRIED:
        inputs = [_ones(model, name, size) if name else None for name in foreign.node.input]
        if any(name and values is None for name, values in zip(foreign.node.input, inputs, strict=True)):
            return {}
        try:
            runs.append(foreign.reference(inputs, foreign.attributes))
        except Exception as error:  # It is the user's code, and ones may be no values for it.
            shapes = ", ".join("none" if array is None else f"{array.dtype} {list(array.shape)}" for array in inputs)
            what = f"the reference of {foreign.reference.name} raised {type(error).__name__}: {error}"
            raise ReferenceFailed(f"{what}, for inputs of {shapes}") from error
    infos = {}
    for name, one, two in zip(foreign.node.output, *runs, strict=False):
        if name and one.ndim == two.ndim and model.main.dtype(name) is None:
            shape = [a if a == b else None for a, b in zip(one.shape, two.shape, strict=True)]
            kind = helper.np_dtype_to_tensor_dtype(one.dtype)
            infos[name] = helper.make_tensor_value_info(name, kind, shape)
    return infos


_TRIED = (2, 3)
"""Sizes that stand for a dynamic one."""
_MOST_ELEMENTS = 1 << 22


def _ones(model: OnnxModel, name: str, size: int) -> Any:
    """Returns a constant, or ones of the shape of a tensor; None where that is not known, or is large."""
    constant = model.main.values(name)
    dtype, shape = model.main.dtype(name), model.main.shape(name)
    if constant is not None or dtype is None or shape is None:
        return constant
    sizes = [size if dim is None else dim for dim in shape]
    return np.ones(sizes, dtype) if math.prod(sizes) <= _MOST_ELEMENTS else None


def node_alone(model: OnnxModel, index: int, feeds: Mapping[str, Any], results: Mapping[str, Any]) -> OnnxModel:
    """Returns a node of the main graph as a model of its own.

    Args:
        model: Where the node is.
        index: Its position.
        feeds: Values of those of its inputs that are to be inputs of the model; constants go along.
        results: Values of those of its outputs that are wanted; types and shapes are taken of them.
    """
    node = model.main.columns.nodes[index]
    proto = onnx.ModelProto(ir_version=model.proto.ir_version)
    proto.opset_import.extend(model.proto.opset_import)
    proto.graph.name = "plugin"
    proto.graph.node.add().CopyFrom(node)
    for name in dict.fromkeys(filter(None, node.input)):
        constant = None if name in feeds else model.main.constant(name)
        if name in feeds:
            proto.graph.input.append(_described(name, feeds[name]))
        elif constant is not None:
            proto.graph.initializer.add().CopyFrom(constant)
            proto.graph.initializer[-1].name = name
    proto.graph.output.extend(_described(name, values) for name, values in results.items())
    return OnnxModel(proto, model.path)


def _described(name: str, values: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)


def meaning_of(model: OnnxModel, tensor: str, plugin: PluginIdentity) -> PluginMeaning | str:
    """Returns what a plugin in a parsed network should compute, or why that is not known.

    Args:
        model: The model that was parsed.
        tensor: Name of the plugin's first output.
        plugin: Which plugin the parser chose.
    """
    for scope in model.scopes:
        node = scope.producer(tensor)
        if node is None:
            continue
        if node.op_type in _IMPORTED and node.domain in ONNX_DOMAINS:
            name, adapt = _IMPORTED[node.op_type]
            reference = find("", name) if plugin.name == name else None
            attributes = None if reference is None else adapt(scope, node)
        else:
            matches = plugin.name in (node.op_type, _MADE_AS.get(node.op_type))
            reference = find(node.domain, node.op_type) if matches else None
            attributes = attributes_of(node)
        if reference is None or attributes is None:
            return f"no reference says what plugin {plugin.name} computes for {node.op_type}; --reference gives one"
        return PluginMeaning(reference, attributes)
    return f"plugin {plugin.name} is of no node of the model"


def _instance_normalization(scope: Any, node: onnx.NodeProto) -> dict[str, Any] | None:
    """Returns the attributes of the plugin that some parsers put in the place of InstanceNormalization."""
    scale, bias = (scope.values(name) for name in node.input[1:3])
    if scale is None or bias is None:
        return None
    return {"epsilon": attributes_of(node).get("epsilon", 1e-5), "scales": scale, "bias": bias}


def _roi_align(scope: Any, node: onnx.NodeProto) -> dict[str, Any]:
    """Returns the attributes of the plugin that parsers from 10 on put in the place of RoiAlign."""
    attributes = {"coordinate_transformation_mode": "half_pixel", "mode": "avg", **attributes_of(node)}
    half = attributes["coordinate_transformation_mode"] == "half_pixel"
    return {**attributes, "coordinate_transformation_mode": int(half), "mode": int(attributes["mode"] == "avg")}


_MADE_AS = {"EfficientNMS_ONNX_TRT": "EfficientNMS_TRT"}
"""Creators whose plugins call themselves otherwise, to what they call themselves (NVIDIA/TensorRT, 8.6 to 11.1)."""
_IMPORTED = {
    "InstanceNormalization": ("InstanceNormalization_TRT", _instance_normalization),
    "RoiAlign": ("ROIAlign_TRT", _roi_align),
}
"""Operators of ONNX that parsers hand to a plugin: its name, and the plugin's attributes for a node."""
