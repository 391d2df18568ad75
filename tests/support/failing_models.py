"""Models that fail on TensorRT-RTX, each in another way, with names and weights that nobody else may see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SECRET = "Zephyr"
"""In every name of every model."""


class FailingModel(NamedTuple):
    """A model and the flags with which it fails.

    Args:
        proto: The model.
        code: How: a rule's code, or "crash".
        flags: Of `trtconv build`.
    """

    proto: onnx.ModelProto
    code: str
    flags: Sequence[str] = ()


class Net:
    """A network that is written node by node, under secret names, behind two convolutions where it has a width."""

    def __init__(self, shape: Sequence[int | str], width: int) -> None:
        self._random = np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self._inputs = [helper.make_tensor_value_info(f"{SECRET}_image", TensorProto.FLOAT, shape)]
        self.last = f"{SECRET}_image"
        if width:
            self.conv(int(shape[1]), width)
            self.conv(width, width)

    def weight(self, *shape: int) -> str:
        return self.constant(self._random.standard_normal(shape).astype(np.float32))

    def constant(self, values: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values), f"{SECRET}.weight.{len(self.weights)}"))
        return self.weights[-1].name

    def input(self, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> str:
        self._inputs.append(helper.make_tensor_value_info(f"{SECRET}_in{len(self._inputs)}", kind, shape))
        return self._inputs[-1].name

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        self.last = f"/{SECRET}/block{len(self.nodes)}/{op}_out"
        self.nodes.append(helper.make_node(op, inputs, [self.last], f"/{SECRET}/{op}_{len(self.nodes)}", **attributes))
        return self.last

    def conv(self, inputs: int, outputs: int) -> None:
        self.node("Conv", [self.last, self.weight(outputs, inputs, 3, 3)], pads=[1, 1, 1, 1])
        self.node("Relu", [self.last])

    def model(self) -> onnx.ModelProto:
        self.node("Identity", [self.last])
        outputs = [onnx.ValueInfoProto(name=self.last)]
        graph = helper.make_graph(self.nodes, f"{SECRET}Net", self._inputs, outputs, self.weights, f"{SECRET} doc")
        opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 17), ("acme", 1))]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name=f"{SECRET}Exporter")
        helper.set_model_props(proto, {f"{SECRET}_commit": "8f2a91c0"})
        proto.graph.node[0].doc_string = f"/home/{SECRET}/train.py:12"
        return proto


def refused_operator() -> FailingModel:
    """The parser has no NonZero of floats in the middle of a network."""
    net = Net([1, 3, 16, 16], 32)
    net.node("NonZero", [net.last])
    return FailingModel(net.model(), "TC401")


def slice_of_scalar() -> FailingModel:
    """A Slice of sizes whose begin is no list ends the process."""
    net = Net([1, 3, 16, 16], 32)
    sizes = net.input([4], TensorProto.INT64)
    net.node("Slice", [sizes, net.constant(np.int64(2)), net.constant(np.array([4], np.int64))])
    return FailingModel(net.model(), "crash")


def top_k_of_floats() -> FailingModel:
    """A TopK whose k is a tensor of floats ends the process."""
    net = Net([1, 3, 16, 16], 32)
    k = net.input([2, 3, 4])
    net.node("TopK", [net.last, k], axis=1)
    return FailingModel(net.model(), "crash")


def nms_of_scores() -> FailingModel:
    """A NonMaxSuppression, which TensorRT-RTX has no kernel for; its third input, of floats, ends the process."""
    net = Net([1, 6, 2, 2], 0)
    boxes = net.node("Reshape", [net.last, net.constant(np.array([1, 6, 4], np.int64))])
    scores, limit = net.input([1, 1, 6]), net.input([1])
    net.node("NonMaxSuppression", [boxes, scores, scores, limit, limit], center_point_box=1)
    return FailingModel(net.model(), "TC204")


def misread_deconvolution(width: int = 256) -> FailingModel:
    """A deconvolution with auto_pad and output_padding is read as another."""
    net = Net(["batch", 3, 16, 16], width)
    net.node(
        "ConvTranspose",
        [net.last, net.weight(width, width // 2, 3, 3)],
        auto_pad="SAME_UPPER",
        strides=[2, 2],
        output_padding=[1, 1],
    )
    return FailingModel(net.model(), "TC102", ["--no-rewrite", "--dim", "batch=1:2:4"])


def foreign_operator() -> FailingModel:
    """An operator of the owner's own."""
    net = Net([1, 3, 16, 16], 32)
    operator = f"{SECRET}Pool"
    net.node(operator, [net.last, net.weight(32, 64)], domain="acme", temperature=0.731, kind=f"{SECRET}-mode")
    return FailingModel(net.model(), "TC401")


def zero_scale() -> FailingModel:
    """A quantiser with a scale of zero: with random ones it would not fail."""
    net = Net([1, 3, 16, 16], 32)
    scale = np.abs(np.random.default_rng(3).standard_normal(32)).astype(np.float32) + 0.01
    scale[5] = 0
    quantized = net.node("QuantizeLinear", [net.last, net.constant(scale), net.constant(np.zeros(32, np.int8))], axis=1)
    net.node("DequantizeLinear", [quantized, net.weights[-2].name, net.weights[-1].name], axis=1)
    return FailingModel(net.model(), "TC303")


def sizes_that_do_not_fit() -> FailingModel:
    """Half of an odd size, twice, meets the whole."""
    net = Net([1, 4, "rows", 16], 16)
    whole = net.last
    net.node("MaxPool", [whole], kernel_shape=[2, 2], strides=[2, 2])
    up = net.node("Resize", [net.last, "", net.constant(np.array([1, 1, 2, 2], np.float32))])
    net.node("Concat", [up, whole], axis=1)
    return FailingModel(net.model(), "TC201", ["--dim", "rows=8:9:16"])


def dilated_deconvolution() -> FailingModel:
    """TensorRT-RTX builds no deconvolution with both strides and dilations."""
    net = Net([1, 3, 12, 12], 24)
    weight = net.weight(24, 24, 3, 3)
    net.node("ConvTranspose", [net.last, weight], strides=[2, 2], dilations=[2, 2])
    return FailingModel(net.model(), "TC104", ["--no-rewrite"])


def zero_points() -> FailingModel:
    """Zero points that are not zero, as quantisers write them."""
    net = Net([1, 3, 16, 16], 32)
    scale, zero = net.constant(np.float32(0.0173129)), net.constant(np.int8(3))
    quantized = net.node("QuantizeLinear", [net.last, scale, zero])
    net.node("DequantizeLinear", [quantized, scale, zero])
    return FailingModel(net.model(), "TC308", ["--no-rewrite"])


def wide_linear() -> FailingModel:
    """A layer of four million weights behind what the parser refuses, whose sizes a Reshape repeats."""
    net = Net([1, 3, 8, 8], 32)
    flat = net.node("Reshape", [net.last, net.constant(np.array([1, 2048], np.int64))])
    wide = net.node("MatMul", [flat, net.weight(2048, 2048)])
    net.node("Unique", [wide], axis=1)
    return FailingModel(net.model(), "TC401")


MODELS: tuple[Callable[[], FailingModel], ...] = (
    refused_operator,
    slice_of_scalar,
    top_k_of_floats,
    nms_of_scores,
    misread_deconvolution,
    foreign_operator,
    zero_scale,
    sizes_that_do_not_fit,
    dilated_deconvolution,
    zero_points,
    wide_linear,
)
