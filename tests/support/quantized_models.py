"""Small quantised models for tests: one layer between quantisers, in every spelling that ONNX has for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.session import Array, run
from trtconv.passes import PASSES

_EXACT = ("expand-integer-operators", "normalize-quantizers", "fold-integer-bias", "shift-uint8-to-int8")
EXACT = tuple(each for each in PASSES if each.name in (*_EXACT, "compute-asymmetric-in-float", "dequantize-constants"))
"""The passes about quantisation that keep every bit of a Q/DQ model."""

MICROSOFT = "com.microsoft"
POINTS = {"int8": (0, 3), "uint8": (128, 0, 3, 200), "int16": (0, 3), "uint16": (32768, 0, 3)}
"""Integer type to the zero points worth trying."""
SPELLINGS = ("initializer", "constant", "computed", "bare")
"""Where scales and zero points come from; "bare" leaves the zero point out."""
MOVES = (
    "none",
    "identity",
    "reshape",
    "transpose",
    "concat",
    "concat_constant",
    "maxpool",
    "resize",
    "pad",
    "pad_fill",
    "pad_edge",
    "slice",
    "squeeze",
    "gather",
    "split",
    "tile",
)
"""What may stand between a QuantizeLinear and its DequantizeLinear."""
BIASES = ("none", "float", "int32", "int32_channels", "computed")


@dataclasses.dataclass(frozen=True)
class Quantiser:
    """A scale and a zero point.

    Args:
        dtype: Integer type.
        point: Zero point.
        axis: Axis of the scales as the node says it, or None for one scale.
        written: Whether the axis is written.
        spelling: One of `SPELLINGS`.
    """

    dtype: str = "int8"
    point: int = 0
    axis: int | None = None
    written: bool = True
    spelling: str = "initializer"


@dataclasses.dataclass(frozen=True)
class Net:
    """A layer with a quantised input and weight.

    Args:
        op: "ConvTranspose", "Conv", "Gemm" or "MatMul".
        kernel: Kernel sizes, one a spatial axis; empty for Gemm and MatMul.
        attrs: Attributes of the layer; its kernel_shape comes from the weight.
        channels: Input and output channels of each group.
        activation: How the input is quantised, or None.
        weight: How the weight is quantised.
        float_weight: Whether the weight is float -> Q -> DQ rather than integer -> DQ.
        bias: One of `BIASES`.
        moves: Some of `MOVES`, in order.
        requantized: Whether the output is quantised too.
        place: "main" or "if".
        shared: Whether a second DequantizeLinear, behind a Transpose, reads the same integer weight.
    """

    op: str = "ConvTranspose"
    kernel: tuple[int, ...] = (3, 3)
    attrs: tuple[tuple[str, Any], ...] = ()
    group: int = 1
    channels: tuple[int, int] = (2, 3)
    size: int = 4
    activation: Quantiser | None = Quantiser()
    weight: Quantiser = Quantiser()
    float_weight: bool = False
    bias: str = "none"
    moves: tuple[str, ...] = ()
    requantized: bool = False
    opset: int = 17
    place: str = "main"
    shared: bool = False

    @property
    def weight_shape(self) -> tuple[int, ...]:
        ins, outs = self.channels
        if self.op == "ConvTranspose":
            return (ins * self.group, outs, *self.kernel)
        if self.op == "Conv":
            return (outs * self.group, ins, *self.kernel)
        return (ins, outs)


class Writer:
    """Collects nodes and initializers under names of their own."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.random = np.random.default_rng(11)

    def name(self, stem: str) -> str:
        return f"{stem}{len(self.nodes)}_{len(self.initializers)}"

    def constant(self, stem: str, values: Any, dtype: Any = None) -> str:
        name = self.name(stem)
        self.initializers.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str = "", domain: str = "", **attrs: Any) -> str:
        output = output or self.name(op.lower())
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"{output}_node", domain=domain, **attrs))
        return output

    def linear(self, op: str, source: str, scale: Array | float, q: Quantiser, output: str = "") -> str:
        """Writes a QuantizeLinear or DequantizeLinear."""
        inputs = [source, self._parameter("scale", np.asarray(scale, np.float32), q)]
        if q.spelling != "bare":
            inputs.append(self._parameter("point", np.full(np.shape(scale), q.point, q.dtype), q))
        attrs = {} if q.axis is None or not q.written else {"axis": q.axis}
        domain = MICROSOFT if q.dtype.endswith("16") and self.opset < 21 else ""
        return self.node(op, inputs, output, domain, **attrs)

    def _parameter(self, stem: str, values: Array, q: Quantiser) -> str:
        if q.spelling == "constant":
            return self.node("Constant", [], value=numpy_helper.from_array(values, "value"))
        if q.spelling == "computed":
            return self.node("Identity", [self.node("Identity", [self.constant(stem, values)])])
        return self.constant(stem, values)


class Mover:
    """Writes nodes that move quantised values; `shape` is the shape of what the last of them made."""

    def __init__(self, writer: Writer, shape: list[int], quantiser: Quantiser, scale: float) -> None:
        self.writer = writer
        self.shape = list(shape)
        self.first = tuple(shape)
        self.quantiser = quantiser
        self.scale = scale

    def apply(self, kind: str, source: str) -> str:
        """Writes one of `MOVES` behind a tensor; returns what it makes."""
        made: str = source if kind == "none" else getattr(self, kind)(source)
        return made

    def identity(self, source: str) -> str:
        return self.writer.node("Identity", [source])

    def reshape(self, source: str) -> str:
        w = self.writer
        flat = w.node("Reshape", [source, w.constant("shape", [self.shape[0], -1], np.int64)])
        return w.node("Reshape", [flat, w.constant("shape", self.shape, np.int64)])

    def transpose(self, source: str) -> str:
        order = [0, 1, *reversed(range(2, len(self.shape)))]
        self.shape = [self.shape[axis] for axis in order]
        return self.writer.node("Transpose", [source], perm=order)

    def concat(self, source: str) -> str:
        if tuple(self.shape[1:]) != self.first[1:]:
            return source
        other = self.writer.linear("QuantizeLinear", self.writer.node("Neg", ["x"]), self.scale, self.quantiser)
        self.shape[0] += self.first[0]
        return self.writer.node("Concat", [source, other], axis=0)

    def concat_constant(self, source: str) -> str:
        limits = np.iinfo(self.quantiser.dtype)
        shape = (1, *self.shape[1:])
        values = self.writer.random.integers(limits.min, limits.max, shape, self.quantiser.dtype, endpoint=True)
        self.shape[0] += 1
        return self.writer.node("Concat", [source, self.writer.constant("rows", values)], axis=0)

    def maxpool(self, source: str) -> str:
        rank = len(self.shape) - 2
        return self.writer.node("MaxPool", [source], kernel_shape=[3] * rank, pads=[1] * 2 * rank)

    def resize(self, source: str) -> str:
        scales = self.writer.constant("scales", [1, 1, *[2] * (len(self.shape) - 2)], np.float32)
        self.shape[2:] = [2 * n for n in self.shape[2:]]
        inputs = [source, scales] if self.writer.opset < 11 else [source, "", scales]
        return self.writer.node("Resize", inputs, mode="nearest")

    def pad(self, source: str, *fill: str, mode: str = "constant") -> str:
        pads = [0, 0, *[1] * (len(self.shape) - 2)] * 2
        self.shape[2:] = [n + 2 for n in self.shape[2:]]
        return self.writer.node("Pad", [source, self.writer.constant("pads", pads, np.int64), *fill], mode=mode)

    def pad_fill(self, source: str) -> str:
        return self.pad(source, self.writer.constant("fill", 7, self.quantiser.dtype))

    def pad_edge(self, source: str) -> str:
        return self.pad(source, mode="edge")

    def slice(self, source: str) -> str:
        if self.shape[-1] < 3:
            return source
        self.shape[-1] -= 1
        ints = [self.writer.constant("slice", [v], np.int64) for v in (1, 1 << 40, len(self.shape) - 1)]
        return self.writer.node("Slice", [source, *ints])

    def squeeze(self, source: str) -> str:
        w = self.writer
        if w.opset < 13:
            return w.node("Squeeze", [w.node("Unsqueeze", [source], axes=[1])], axes=[1])
        axes = w.constant("axes", [1], np.int64)
        return w.node("Squeeze", [w.node("Unsqueeze", [source, axes]), axes])

    def gather(self, source: str) -> str:
        rows = self.writer.constant("rows", range(self.shape[0])[::-1], np.int64)
        return self.writer.node("Gather", [source, rows], axis=0)

    def split(self, source: str) -> str:
        if self.shape[0] % 2:
            return source
        w = self.writer
        parts = [w.name("part"), w.name("rest")]
        extra = {"num_outputs": 2} if w.opset >= 18 else {}
        w.nodes.append(helper.make_node("Split", [source], parts, name=f"{parts[0]}_node", axis=0, **extra))
        return w.node("Concat", parts[::-1], axis=0)

    def tile(self, source: str) -> str:
        self.shape[0] *= 2
        repeats = self.writer.constant("repeats", [2, *[1] * (len(self.shape) - 1)], np.int64)
        return self.writer.node("Tile", [source, repeats])


def run_bitwise(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Runs a model on ONNX Runtime so that constant and computed weights take the same kernels."""
    return run(proto, feeds, prepacked=False)


def weight_parts(net: Net) -> tuple[Array, Array]:
    """Returns the real weight and its scales: () or one a channel."""
    random = np.random.default_rng(5)
    shape = net.weight_shape
    gains = 2.0 ** random.integers(-3, 3, (*shape[:2], *[1] * (len(shape) - 2)))
    real = (random.standard_normal(shape) * gains).astype(np.float32)
    axis = net.weight.axis
    others = None if axis is None else tuple(a for a in range(real.ndim) if a != axis % real.ndim)
    wide = 32000 if net.weight.dtype.endswith("16") else 127
    return real, np.asarray(np.maximum(np.abs(real).max(others), 1e-3) / wide, np.float32)


def make_net(net: Net) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Returns a model around a layer, and its inputs."""
    w = Writer(net.opset)
    shape = [2, net.channels[0] * (net.group if net.kernel else 1), *[net.size] * len(net.kernel)]
    # Wider than the quantiser's range, so that saturation is seen.
    x = (w.random.standard_normal(shape) * 4).astype(np.float32)
    data = "x"
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if net.activation is not None:
        step = 5 / (32768 if net.activation.dtype.endswith("16") else 128)
        data = w.linear("QuantizeLinear", "x", step, net.activation)
        mover = Mover(w, shape, net.activation, step)
        for kind in net.moves:
            data = mover.apply(kind, data)
        data = w.linear("DequantizeLinear", data, step, net.activation)
    weight = _weight(w, net, outputs)
    inputs = [data, weight, *_bias(w, net)]
    attrs = dict(net.attrs) | ({"group": net.group} if net.kernel else {})
    y = "z" if net.requantized else "y"
    if net.op == "MatMul":
        attrs = {}
        inputs = inputs[:2]
    w.node(net.op, inputs, y, **attrs)
    if net.requantized:
        step = 0.25 / (256 if net.weight.dtype.endswith("16") else 1)
        q = net.activation or Quantiser()
        w.linear("DequantizeLinear", w.linear("QuantizeLinear", "z", step, q), step, q, "y")
    return _finish(w, net, x, outputs), {"x": x} | ({"flag": np.array(True)} if net.place == "if" else {})


def _weight(w: Writer, net: Net, outputs: list[onnx.ValueInfoProto]) -> str:
    real, scale = weight_parts(net)
    q = net.weight
    if net.float_weight:
        return w.linear("DequantizeLinear", w.linear("QuantizeLinear", w.constant("w", real), scale, q), scale, q)
    limits = np.iinfo(q.dtype)
    wide = scale if q.axis is None else scale.reshape([-1 if a == q.axis % real.ndim else 1 for a in range(real.ndim)])
    integers = np.clip(np.rint(real / wide) + q.point, limits.min, limits.max).astype(q.dtype)
    constant = w.constant("w", integers)
    if net.shared and q.axis is None:
        turned = w.node("Transpose", [constant], perm=[1, 0, *range(2, real.ndim)])
        w.linear("DequantizeLinear", turned, scale, q, "other")
        outputs.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, None))
    return w.linear("DequantizeLinear", constant, scale, q)


def _bias(w: Writer, net: Net) -> list[str]:
    count = net.channels[1] * net.group
    values = np.linspace(-1, 1, count)
    if net.bias == "float":
        return [w.constant("b", values, np.float32)]
    if net.bias == "computed":
        return [w.node("Neg", [w.constant("b", values, np.float32)])]
    if net.bias == "int32":
        return [
            w.node("DequantizeLinear", [w.constant("b", values * 1e4, np.int32), w.constant("s", 1e-4, np.float32)])
        ]
    if net.bias == "int32_channels":
        scales = w.constant("s", np.linspace(1, 2, count) * 1e-4, np.float32)
        point = w.constant("z", np.zeros(count, np.int32))
        return [w.node("DequantizeLinear", [w.constant("b", values * 1e4, np.int32), scales, point], axis=0)]
    return []


def _finish(w: Writer, net: Net, x: Array, outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    nodes = w.nodes
    if net.place == "if":
        inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
        inner = helper.make_node("Identity", ["y"], ["inner"], name="inner_node")
        then = helper.make_graph(
            [*nodes, inner], "then", [], [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)]
        )
        negated = helper.make_node("Neg", ["x"], ["negated"], name="negated_node")
        other = helper.make_graph(
            [negated], "else", [], [helper.make_tensor_value_info("negated", TensorProto.FLOAT, None)]
        )
        nodes = [helper.make_node("If", ["flag"], ["result"], name="choice", then_branch=then, else_branch=other)]
        outputs = [helper.make_tensor_value_info("result", TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", net.opset), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, w.initializers)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if net.opset > 20 else 8)
