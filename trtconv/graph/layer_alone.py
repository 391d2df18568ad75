"""One transposed convolution as a small model of its own, to be timed: its sizes and types, and neighbours like its."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from trtconv.core.dims import times
from trtconv.core.encode import plain
from trtconv.core.frozen import frozen
from trtconv.graph.attributes import readable
from trtconv.graph.views import Deconv

_THROUGH = ("QuantizeLinear", "DequantizeLinear", "Cast", "Identity", "Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh")
"""Operators that TensorRT fuses into what is beside them."""
_NEIGHBOUR_CHANNELS = 16
_ELEMENTS = {"float16": (np.float16, TensorProto.FLOAT16), "float32": (np.float32, TensorProto.FLOAT)}
_STEP = 4 / 127
"""Of the quantisers: values are around 1."""


@frozen
class LayerAlone:
    """What decides how fast a transposed convolution is.

    Args:
        attributes: Of its node, by name.
        x: Shape of its input, (N, C, spatial...).
        weight: Shape of its weight, (C_in, C_out/group, k...).
        has_bias: Whether it has a bias.
        element: "float32", "float16", or "int8" where it stands between quantisers.
        opset: Of the model.
        relu: Whether a Relu follows.
        is_first: Whether its input is the network's; otherwise a convolution stands before it.
        is_last: Whether its output is the network's; otherwise a convolution stands behind it.
    """

    attributes: Mapping[str, Any]
    x: tuple[int, ...]
    weight: tuple[int, ...]
    has_bias: bool
    element: str
    opset: int
    relu: bool
    is_first: bool
    is_last: bool

    @property
    def key(self) -> Mapping[str, object]:
        """Everything of it as plain JSON values."""
        document: Mapping[str, object] = json.loads(json.dumps(plain(dataclasses.asdict(self)), sort_keys=True))
        return document

    @property
    def title(self) -> str:
        """Its sizes in words."""
        out = self.weight[1] * self.attributes.get("group", 1)
        return f"{self.weight[0]} -> {out} channels, {self.x[0]} x {times(self.x[2:])}, {self.element}"

    def model(self) -> onnx.ModelProto:
        """Makes the model; its one input is x, its one output y."""
        return _Drawing(self).model()

    def feeds(self) -> dict[str, NDArray[Any]]:
        """Makes values of its input."""
        channels = self.x[1] if self.is_first else _NEIGHBOUR_CHANNELS
        values = np.random.default_rng(0).standard_normal((self.x[0], channels, *self.x[2:]))
        return {"x": values.astype(_dtype(self.element)[0])}


def layer_of(view: Deconv, weight: Sequence[int], x: Sequence[int], element: str, opset: int) -> LayerAlone:
    """Describes a node where it stands.

    Args:
        view: The node.
        weight: Shape of its weight.
        x: Shape of its input.
        element: As in `LayerAlone`.
        opset: Of the model.
    """
    users = view.scope.consumers.get(view.node.output[0], ())
    return LayerAlone(
        attributes={entry.name: readable(entry) for entry in view.node.attribute},
        x=tuple(x),
        weight=tuple(weight),
        has_bias=bool(view.bias),
        element=element,
        opset=opset,
        relu=any(user.op_type == "Relu" for user in users),
        is_first=_begins(view),
        is_last=_ends(view),
    )


def _begins(view: Deconv) -> bool:
    """Whether nothing but quantisers and the like stands between the input of the network and a node."""
    name, scope = view.inputs[0], view.scope
    while (index := scope.producers.get(name)) is not None:
        if scope.columns.ops[index] not in _THROUGH:
            return False
        name = scope.columns.inputs[index][0]
    return True


def _ends(view: Deconv) -> bool:
    """Whether nothing but activations and the like stands between a node and the output of the network."""
    names = [view.node.output[0]]
    while names:
        users = view.scope.consumers.get(names.pop(), ())
        if any(user.op_type not in _THROUGH for user in users):
            return False
        names += [user.output[0] for user in users]
    return True


def _dtype(element: str) -> tuple[Any, int]:
    return _ELEMENTS["float32" if element == "int8" else element]


class _Drawing:
    """The nodes of a layer's model."""

    def __init__(self, layer: LayerAlone) -> None:
        self._layer = layer
        self._dtype, self._type = _dtype(layer.element)
        self._random = np.random.default_rng(1)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[TensorProto] = []

    def model(self) -> onnx.ModelProto:
        layer, rank = self._layer, len(self._layer.x) - 2
        channels = layer.x[1] if layer.is_first else _NEIGHBOUR_CHANNELS
        tensor = self._quantized("x")
        if not layer.is_first:
            tensor = self._quantized(self._conv(tensor, channels, layer.x[1], rank))
        out = layer.weight[1] * layer.attributes.get("group", 1)
        inputs = [tensor, self._weight(layer.weight), *([self._constant(self._values(out))] if layer.has_bias else [])]
        tensor = self._node("ConvTranspose", inputs, **layer.attributes)
        if layer.relu:
            tensor = self._node("Relu", [tensor])
        tensor = self._quantized(tensor)
        if not layer.is_last:
            tensor = self._conv(tensor, out, _NEIGHBOUR_CHANNELS, rank)
        self._nodes.append(helper.make_node("Identity", [tensor], ["y"]))
        x = helper.make_tensor_value_info("x", self._type, [layer.x[0], channels, *layer.x[2:]])
        result = helper.make_tensor_value_info("y", self._type, [None] * len(layer.x))
        graph = helper.make_graph(self._nodes, "layer", [x], [result], self._constants)
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", layer.opset)])

    def _conv(self, tensor: str, inputs: int, outputs: int, rank: int) -> str:
        weight = self._weight((outputs, inputs, *[1] * rank), fan=inputs)
        return self._node("Conv", [tensor, weight], kernel_shape=[1] * rank)

    def _weight(self, shape: Sequence[int], fan: int = 0) -> str:
        fan = fan or math.prod(shape) // max(1, shape[1])
        return self._quantized(self._constant(self._values(*shape) / math.sqrt(fan)))

    def _values(self, *shape: int) -> NDArray[Any]:
        return self._random.standard_normal(shape)

    def _quantized(self, tensor: str) -> str:
        """Sends a tensor through a quantiser and back, in an int8 layer."""
        if self._layer.element != "int8":
            return tensor
        step = self._constant(np.array(_STEP))
        self._constants.append(numpy_helper.from_array(np.int8(0), f"{step}_zero"))
        names = [step, f"{step}_zero"]
        return self._node("DequantizeLinear", [self._node("QuantizeLinear", [tensor, *names]), *names])

    def _constant(self, values: NDArray[Any]) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(values).astype(self._dtype), name))
        return name

    def _node(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], name=f"n{len(self._nodes)}", **attributes))
        return name
