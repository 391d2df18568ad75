"""One ConvTranspose taken out of its model, for TensorRT's own parser to read by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnx import ModelProto, NodeProto, TensorProto, helper

from trtconv.core.documents.explain import Layers
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv
from trtconv.runtimes.tensorrt import ParsedNetwork, Runtime
from trtconv.runtimes.tensorrt.audit import audit

_ELEMENT_TYPES = {
    "float16": (TensorProto.FLOAT16, 2),
    "float32": (TensorProto.FLOAT, 4),
    "float64": (TensorProto.DOUBLE, 8),
    "bfloat16": (TensorProto.BFLOAT16, 2),
}
_CONSTANT_SOURCES = ("QuantizeLinear", "DequantizeLinear", "Cast", "Identity", "Constant")


def parse_alone(model: OnnxModel, node: Deconv, engine: Runtime) -> Layers | None:
    """Has a parser read a model of one node, its weights zeros.

    Args:
        model: The model that the node is in.
        node: The node.
        engine: Whose parser is asked.

    Returns:
        What it made of the node; None where its weight has no static shape or its geometry is not known.
    """
    proto = isolate(model, node)
    if proto is None:
        return None
    small = OnnxModel(proto, model.path)
    name = f"{engine.info.family} {engine.info.version}"
    parsed = engine.parse(small.serialize(), model.path)
    if isinstance(parsed, tuple):
        return Layers(name, refused="; ".join(issue.message for issue in parsed))
    return _layers(name, parsed, tuple(finding.message for finding in audit(small, parsed)))


def _layers(name: str, parsed: ParsedNetwork, differences: tuple[str, ...]) -> Layers:
    attributes: dict[str, object] = {}
    for layer in parsed.deconvolutions:
        attributes = {
            "kernel": layer.kernel,
            "stride": layer.stride,
            "dilation": layer.dilation,
            "pre_padding": layer.pre_padding,
            "post_padding": layer.post_padding,
            "padding_mode": layer.padding_mode,
            "groups": layer.groups,
            "has_bias": layer.has_bias,
        }
    others = tuple(kind for kind in parsed.layer_types if kind not in ("DECONVOLUTION", "CONSTANT"))
    return Layers(name, "", attributes, others, differences)


def isolate(model: OnnxModel, node: Deconv) -> ModelProto | None:
    """Returns a model of one node: same attributes, types, shapes and kinds of weight and bias; zeros for weights."""
    shape = node.weight_shape
    geometry = node.geometry
    if isinstance(geometry, str) or shape is None or len(shape) != geometry.rank + 2 or None in shape:
        return None
    weight = tuple(size for size in shape if size is not None)
    tensors = {"w": (node.inputs[1], weight)}
    if node.bias:
        tensors["b"] = (node.bias, (weight[1] * geometry.group,))
    element, width = _ELEMENT_TYPES.get(node.scope.dtype(node.inputs[1]) or "", _ELEMENT_TYPES["float32"])
    inputs = [helper.make_tensor_value_info("x", element, _data_shape(node, weight))]
    initializers = []
    for name, (source, dims) in tensors.items():
        if _is_constant(node.scope, source):
            initializers.append(helper.make_tensor(name, element, dims, bytes(math.prod(dims) * width), raw=True))
        else:
            inputs.append(helper.make_tensor_value_info(name, element, dims))
    output = helper.make_tensor_value_info("y", element, [None] * len(weight))
    graph = helper.make_graph([_renamed(node.node, ["x", *tensors])], "node", inputs, [output], initializers)
    opsets = [opset for opset in model.proto.opset_import if opset.domain in ("", "ai.onnx")]
    return helper.make_model(graph, ir_version=model.proto.ir_version, opset_imports=opsets)


def _data_shape(node: Deconv, weight: Sequence[int]) -> list[int | str]:
    shape = node.input_shape or ()
    sizes = [*shape[2:], *[None] * len(weight)][: len(weight) - 2]
    return ["n", weight[0], *(f"d{axis}" if size is None else size for axis, size in enumerate(sizes))]


def _renamed(node: NodeProto, inputs: Sequence[str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.input[:], copy.output[:]
    copy.input.extend(inputs)
    copy.output.append("y")
    copy.name = "node"
    return copy


def _is_constant(scope: Scope, name: str) -> bool:
    if scope.initializer(name) is not None:
        return True
    source = scope.producer(name)
    return source is not None and source.op_type in _CONSTANT_SOURCES
