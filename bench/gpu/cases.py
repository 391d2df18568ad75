"""The cases: every way to spell a transposed convolution, with and without Q/DQ, and the networks of models/.

Each case makes its model and its inputs from fixed seeds. Channels have strongly different scales and inputs lie well
away from the rounding edges of their quantisers, so that a wrong axis, scale or shift is far above any rounding.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

MODELS = Path(__file__).resolve().parents[2] / "models"
OPSET, IR_VERSION = 17, 8
EXACT, ROUNDED, HALF, NETWORK = 1e-5, 1e-2, 1e-2, 2e-2
"""Limits of the relative error: float32 without TF32, int8 layers, float16, whole int8 networks."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """A model and what to run it on.

    Args:
        model: The ONNX model.
        feeds: Values of its inputs.
        profile: Smallest, best and largest shape of every input, where one is dynamic.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    profile: dict[str, Shapes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the table.

    Args:
        name: Unique.
        section: "parser", "speed", "quantized", "random" or "networks".
        title: What is special about it, in words.
        make: Makes the sample.
        precision: "fp32" (TF32 off), "fp16" or "int8".
        limit: Largest relative error of the rewritten model.
        against: Whose result on ONNX Runtime the rewritten one is held to: "original", or "rewritten" where the
            rewrite moves weights by a quantisation step.
        target: What the passes rewrite for.
        max_ratio: Largest latency of the rewritten engine over that of the raw one; infinite where it is not timed.
        half_io: Whether inputs and outputs of the network are float16.
        refused_by: Code of the finding with which trtconv must refuse the model; "" where it must build it.
        by_adapter: Whether an engine is also built and run through trtconv's own adapter.
    """

    name: str
    section: str
    title: str
    make: Callable[[], Sample]
    precision: str = "fp32"
    limit: float = EXACT
    against: str = "original"
    target: str = "tensorrt-8.6"
    max_ratio: float = 1.05
    half_io: bool = False
    refused_by: str = ""
    by_adapter: bool = False


@dataclasses.dataclass(frozen=True)
class Quant:
    """How a layer is quantised.

    Args:
        scales: Of the weights: "tensor", "axis 0" or "axis 1".
        weights: "QDQ" (float -> Q -> DQ) or "DQ" (integers -> DQ).
        weight_zero: Type and zero point of the weights: "int8 0", "uint8 128" or "int8" (none is given).
        input_zero: The same of the input; "uint8" gives none, which means uint8 around 0.
        output: Whether the result is quantised too.
        axis_written: Whether per-channel scales come with their axis.
        scale_computed: Whether the scale of the weights comes out of a Mul of constants.
        then: Output channels of an int8 1x1 convolution behind, or 0.
    """

    scales: str = "axis 1"
    weights: str = "QDQ"
    weight_zero: str = "int8 0"
    input_zero: str = "int8 0"
    output: bool = True
    axis_written: bool = True
    scale_computed: bool = False
    then: int = 0


@dataclasses.dataclass(frozen=True)
class Layer:
    """One ConvTranspose; sizes, kernel, stride, pads and so on are the same along every spatial axis.

    Args:
        channels: Input and output channels, over all groups.
        pads: One for both ends, or (begin, end); None leaves the attribute out.
        extra: output_padding.
        out: output_shape.
        bias: "initializer", "none", "computed", "input" or "int32".
        weight: "initializer", "computed" or "input".
        dynamic: Whether the spatial sizes are.
    """

    rank: int = 2
    size: int = 32
    batch: int = 2
    channels: tuple[int, int] = (64, 48)
    group: int = 1
    kernel: int = 3
    stride: int = 2
    dilation: int = 1
    pads: int | tuple[int, int] | None = None
    extra: int = 0
    auto_pad: str = "NOTSET"
    out: int | None = None
    bias: str = "initializer"
    weight: str = "initializer"
    dynamic: bool = False
    relu: bool = False
    quant: Quant | None = None

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes of the node; those at their default are left out."""
        attrs: dict[str, Any] = {"kernel_shape": [self.kernel] * self.rank, "strides": [self.stride] * self.rank}
        if self.group != 1:
            attrs["group"] = self.group
        if self.dilation != 1:
            attrs["dilations"] = [self.dilation] * self.rank
        if self.pads is not None:
            begin, end = (self.pads, self.pads) if isinstance(self.pads, int) else self.pads
            attrs["pads"] = [begin] * self.rank + [end] * self.rank
        if self.extra:
            attrs["output_padding"] = [self.extra] * self.rank
        if self.auto_pad != "NOTSET":
            attrs["auto_pad"] = self.auto_pad
        if self.out is not None:
            attrs["output_shape"] = [self.out] * self.rank
        return attrs


class Net:
    """A model in the making."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(20211)
        self.inputs: list[onnx.ValueInfoProto] = []
        self.feeds: dict[str, Array] = {}
        self._initializers: list[TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._numbers = itertools.count()

    def input(self, name: str, values: Array, dims: Sequence[int | str] | None = None) -> str:
        """Adds a graph input and its values."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims or values.shape))
        self.feeds[name] = values
        return name

    def constant(self, name: str, values: Any) -> str:
        """Adds an initializer."""
        self._initializers.append(numpy_helper.from_array(np.array(values, order="C"), name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str = "", **attrs: Any) -> str:
        """Adds a node; returns the name of its output."""
        output = output or f"{op}_{next(self._numbers)}"
        self._nodes.append(helper.make_node(op, inputs, [output], name=f"{output}/node", **attrs))
        return output

    def model(self, output: str) -> onnx.ModelProto:
        """Returns the model that ends in a tensor."""
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self._nodes, "case", self.inputs, [result], self._initializers)
        return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)])

    def peak(self, tensor: str) -> float:
        """Returns the largest magnitude of a tensor, run on ONNX Runtime."""
        return float(np.abs(run_onnx(self.model(tensor), self.feeds)[0]).max())


def run_onnx(model: onnx.ModelProto, feeds: dict[str, Array], threads: int = 0) -> list[Array]:
    """Runs a model on ONNX Runtime on the CPU, its optimisations off; they may themselves change a deconvolution."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {each.name for each in session.get_inputs()}
    return list(session.run(None, {name: values for name, values in feeds.items() if name in wanted}))


def make_layer(layer: Layer) -> Sample:
    """Makes the model of one layer."""
    net = Net()
    shape = (layer.batch, layer.channels[0], *[layer.size] * layer.rank)
    dims: list[int | str] | None = [*shape[:2], *(f"d{a}" for a in range(layer.rank))] if layer.dynamic else None
    weights = _weights(net, layer)
    inputs = ["x", "w"]
    step = None
    if layer.quant is None:
        net.input("x", net.random.standard_normal(shape).astype(np.float32), dims)
        _float_weight(net, layer, weights)
    else:
        values, step = _between_edges(net, layer.quant, shape)
        inputs = [_quantize_input(net, layer.quant, net.input("x", values, dims), step)]
        inputs.append(_quantize_weight(net, layer, weights))
    if layer.bias != "none":
        inputs.append(_bias(net, layer, step))
    result = net.node("ConvTranspose", inputs, "up", **layer.attributes())
    if layer.relu:
        result = net.node("Relu", [result])
    if layer.quant is not None:
        result = _quantize_output(net, layer, result)
    profile = _profile(layer, shape) if layer.dynamic else {}
    if layer.dynamic:
        profile |= {name: (values.shape,) * 3 for name, values in net.feeds.items() if name != "x"}
    return Sample(net.model(result), net.feeds, profile)


def _profile(layer: Layer, shape: tuple[int, ...]) -> dict[str, Shapes]:
    sizes = (layer.size // 2, layer.size, 2 * layer.size)
    low, best, high = ((*shape[:2], *[size] * layer.rank) for size in sizes)
    return {"x": (low, best, high)}


def _weights(net: Net, layer: Layer) -> Array:
    """Returns weights whose channels differ by up to 64 times, along the axis that has scales of its own."""
    shape = (layer.channels[0], layer.channels[1] // layer.group, *[layer.kernel] * layer.rank)
    axis = 0 if layer.quant is not None and layer.quant.scales == "axis 0" else 1
    sizes = 2.0 ** net.random.integers(-3, 4, shape[axis])
    spread = sizes.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return (net.random.standard_normal(shape) * spread).astype(np.float32)


def _float_weight(net: Net, layer: Layer, weights: Array) -> None:
    if layer.weight == "input":
        net.input("w", weights)
    elif layer.weight == "computed":
        net.input("gain", np.full((1,), 1.5, np.float32))
        net.node("Mul", [net.constant("w0", weights), "gain"], "w")
    else:
        net.constant("w", weights)


def _bias(net: Net, layer: Layer, step: float | None) -> str:
    values = (net.random.standard_normal(layer.channels[1]) * 4).astype(np.float32)
    if layer.bias == "input":
        return net.input("b", values)
    if layer.bias == "computed":
        return net.node("Add", [net.constant("b0", values), net.constant("b1", values)], "b")
    if layer.bias == "int32":
        assert step is not None
        scale = np.float32(step * 0.01)
        integers = np.rint(values / scale).astype(np.int32)
        names = [net.constant("b_q", integers), net.constant("b_scale", scale), net.constant("b_zero", np.int32(0))]
        return net.node("DequantizeLinear", names, "b")
    return net.constant("b", values)


def _between_edges(net: Net, quant: Quant, shape: tuple[int, ...]) -> tuple[Array, float]:
    """Returns input values away from the edges of their quantiser's steps, and the step."""
    step = 0.05
    low, high = (0, 255) if quant.input_zero == "uint8" else (-120, 120)
    integers = net.random.integers(low, high + 1, shape)
    return (step * (integers + net.random.uniform(-0.35, 0.35, shape))).astype(np.float32), step


def _quantize_input(net: Net, quant: Quant, tensor: str, step: float) -> str:
    names = [net.constant("x_scale", np.float32(step)), *_zero(net, "x_zero", quant.input_zero, ())]
    if quant.input_zero == "uint8":
        return net.node("DequantizeLinear", [net.node("QuantizeLinear", [tensor, *names]), *names])
    return _qdq(net, tensor, names)


def _qdq(net: Net, tensor: str, names: Sequence[str], **attrs: Any) -> str:
    quantized = net.node("QuantizeLinear", [tensor, *names], **attrs)
    return net.node("DequantizeLinear", [quantized, *names], **attrs)


def _zero(net: Net, name: str, spelled: str, shape: tuple[int, ...]) -> list[str]:
    """Adds a zero point that is spelled like "uint8 128"; none where the number is missing."""
    dtype, _, value = spelled.partition(" ")
    return [net.constant(name, np.full(shape, int(value), dtype))] if value else []


def _quantize_weight(net: Net, layer: Layer, weights: Array) -> str:
    quant = layer.quant
    assert quant is not None
    axis = None if quant.scales == "tensor" else int(quant.scales[-1])
    others = tuple(a for a in range(weights.ndim) if a != axis)
    scale = (np.abs(weights).max(axis=others if axis is not None else None) / 127).astype(np.float32)
    attrs = {"axis": axis} if axis is not None and quant.axis_written else {}
    if quant.scale_computed:
        halves = [net.constant("w_half", scale / 2), net.constant("two", np.float32(2))]
        names = [net.node("Mul", halves, "w_scale")]
    else:
        names = [net.constant("w_scale", scale)]
    names += _zero(net, "w_zero", quant.weight_zero, scale.shape)
    if quant.weights == "QDQ":
        return _qdq(net, net.constant("w", weights), names, **attrs)
    wide = scale if axis is None else scale.reshape([-1 if a == axis else 1 for a in range(weights.ndim)])
    dtype, _, zero = quant.weight_zero.partition(" ")
    integers = (np.clip(np.rint(weights / wide), -127, 127) + int(zero or 0)).astype(dtype)
    return net.node("DequantizeLinear", [net.constant("w_q", integers), *names], "w", **attrs)


def _quantize_output(net: Net, layer: Layer, tensor: str) -> str:
    quant = layer.quant
    assert quant is not None
    zero = "int8 0" if quant.input_zero == "uint8" else quant.input_zero
    if quant.output or quant.then:
        scale = np.float32(net.peak(tensor) / 127)
        tensor = _qdq(net, tensor, [net.constant("y_scale", scale), *_zero(net, "y_zero", zero, ())])
    if quant.then:
        weights = net.random.standard_normal((quant.then, layer.channels[1], *[1] * layer.rank)).astype(np.float32)
        scale = (np.abs(weights).max(axis=tuple(range(1, weights.ndim))) / 127).astype(np.float32)
        names = [net.constant("c_scale", scale), net.constant("c_zero", np.zeros(scale.shape, np.int8))]
        weight = _qdq(net, net.constant("c", weights), names, axis=0)
        tensor = net.node("Conv", [tensor, weight], "then", kernel_shape=[1] * layer.rank)
    return tensor


_RANKS: dict[int, dict[str, Any]] = {1: {"size": 512, "batch": 4}, 2: {}, 3: {"size": 12, "channels": (32, 24)}}
"""What makes layers of every rank about equally heavy."""


def layer_case(name: str, title: str, layer: Layer, **more: Any) -> Case:
    """Makes a float32 case of one layer."""
    return Case(name, "parser", title, functools.partial(make_layer, layer), **more)


def parser_cases() -> Iterator[Case]:
    """ConvTranspose as TensorRT's parser meets it, in float32."""
    yield from _padding_cases()
    yield from _automatic_cases()
    yield from _output_shape_cases()
    yield from _source_cases()
    yield from _rank_cases()


def _padding_cases() -> Iterator[Case]:
    case = layer_case
    yield case("pads-1", "pads 1, no output_padding (nothing to do)", Layer(pads=1))
    yield case("pads-1-op-1", "output_padding 1 <= end pad 1", Layer(pads=1, extra=1), by_adapter=True)
    yield case(
        "pads-1-op-1-dynamic",
        "output_padding 1 <= end pad 1, dynamic H/W",
        Layer(pads=1, extra=1, dynamic=True),
        by_adapter=True,
    )
    yield case("pads-0-op-1", "output_padding 1 > end pad 0", Layer(pads=0, extra=1), by_adapter=True)
    yield case(
        "pads-0-op-1-dynamic",
        "output_padding 1 > end pad 0, dynamic H/W",
        Layer(pads=0, extra=1, dynamic=True),
        by_adapter=True,
    )
    yield case("pads-0-op-1-k2", "kernel 2, output_padding 1 > end pad 0", Layer(kernel=2, pads=0, extra=1))
    yield case("pads-1-op-2-s3", "stride 3, output_padding 2 > end pad 1", Layer(stride=3, kernel=4, pads=1, extra=2))
    yield case("pads-uneven-op-1", "pads (2, 0), output_padding 1", Layer(kernel=4, pads=(2, 0), extra=1))
    yield case("kernel-1-op-1", "kernel 1, stride 2, pads 1, output_padding 1", Layer(kernel=1, pads=1, extra=1))
    yield case("pads-0-op-1-no-bias", "output_padding 1 > end pad 0, no bias", Layer(pads=0, extra=1, bias="none"))
    yield case(
        "pads-0-op-1-bias-computed",
        "output_padding 1 > end pad 0, bias computed in the graph",
        Layer(pads=0, extra=1, bias="computed"),
    )
    yield case(
        "pads-0-op-1-bias-input",
        "output_padding 1 > end pad 0, bias a graph input",
        Layer(pads=0, extra=1, bias="input"),
    )
    yield case("pads-negative", "pads -1", Layer(pads=-1))
    yield case("dilation-2", "dilation 2, stride 1", Layer(stride=1, dilation=2, pads=1))
    yield case("dilation-2-stride-2", "dilation 2, stride 2", Layer(dilation=2, pads=1), by_adapter=True)
    yield case(
        "dilation-2-stride-2-op-1",
        "dilation 2, stride 2, output_padding 1 > end pad 0",
        Layer(dilation=2, pads=0, extra=1),
    )
    yield case(
        "dilation-2-kernel",
        "dilation 2, stride 2, rewritten as for RTX",
        Layer(dilation=2, pads=1),
        target="rtx",
        max_ratio=float("inf"),
    )
    yield case("op-too-large", "output_padding 2 = max(stride, dilation)", Layer(pads=1, extra=2), refused_by="TC105")


def _automatic_cases() -> Iterator[Case]:
    case = layer_case
    yield case("valid-op-1", "auto_pad VALID, output_padding 1", Layer(auto_pad="VALID", extra=1))
    for mode in ("UPPER", "LOWER"):
        name, auto = f"same-{mode.lower()}", f"SAME_{mode}"
        yield case(name, f"auto_pad {auto}", Layer(auto_pad=auto))
        yield case(f"{name}-op-1", f"auto_pad {auto}, output_padding 1", Layer(auto_pad=auto, extra=1))
        yield case(
            f"{name}-op-1-dynamic",
            f"auto_pad {auto}, output_padding 1, dynamic H/W",
            Layer(auto_pad=auto, extra=1, dynamic=True),
            by_adapter=mode == "UPPER",
        )
    yield case(
        "same-upper-k4-op-1",
        "auto_pad SAME_UPPER, kernel 4, output_padding 1",
        Layer(auto_pad="SAME_UPPER", kernel=4, extra=1),
    )


def _output_shape_cases() -> Iterator[Case]:
    case = layer_case
    yield case("output-shape-odd", "output_shape, total padding odd", Layer(out=64), by_adapter=True)
    yield case("output-shape-even", "output_shape, total padding even", Layer(out=63))
    yield case("output-shape-op-1", "output_shape and output_padding 1", Layer(out=64, extra=1))
    yield case("output-shape-larger", "output_shape beyond the full result", Layer(kernel=2, out=65))
    yield case("output-shape-same-upper", "output_shape and SAME_UPPER", Layer(out=64, auto_pad="SAME_UPPER"))
    yield case("output-shape-same-lower", "output_shape and SAME_LOWER", Layer(out=64, auto_pad="SAME_LOWER"))
    yield case("output-shape-dynamic", "output_shape, dynamic H/W", Layer(out=64, dynamic=True), by_adapter=True)


def _source_cases() -> Iterator[Case]:
    case = layer_case
    for weight, what in (("input", "a graph input"), ("computed", "computed at run time")):
        yield case(
            f"weight-{weight}", f"weight {what}, pads 1, output_padding 1", Layer(pads=1, extra=1, weight=weight)
        )
        yield case(
            f"weight-{weight}-op-beyond",
            f"weight {what}, output_padding 1 > end pad 0",
            Layer(pads=0, extra=1, weight=weight),
        )
    for group, what in ((2, "2 groups"), (48, "depthwise")):
        channels = (48, 48) if group == 48 else (64, 48)
        for pads in (1, 0):
            name = f"{'depthwise' if group == 48 else 'groups-2'}-pads-{pads}-op-1"
            layer = Layer(pads=pads, extra=1, group=group, channels=channels)
            yield case(name, f"{what}, pads {pads}, output_padding 1", layer)


def _rank_cases() -> Iterator[Case]:
    for rank in (1, 3):
        make = functools.partial(Layer, rank=rank, **_RANKS[rank])
        size = int(_RANKS[rank]["size"])
        for name, title, layer in (
            ("pads-1-op-1", "pads 1, output_padding 1", make(pads=1, extra=1)),
            ("pads-0-op-1", "output_padding 1 > end pad 0", make(pads=0, extra=1)),
            ("pads-0-op-1-dynamic", "output_padding 1 > end pad 0, dynamic sizes", make(pads=0, extra=1, dynamic=True)),
            ("same-upper-op-1", "auto_pad SAME_UPPER, output_padding 1", make(auto_pad="SAME_UPPER", extra=1)),
            ("output-shape-odd", "output_shape, total padding odd", make(out=2 * size)),
        ):
            yield layer_case(f"{rank}d-{name}", f"{rank}-D: {title}", layer)


SPEED_LAYERS = (
    ("256-128-k3", Layer(size=64, batch=4, channels=(256, 128), pads=0, extra=1, relu=True)),
    ("64-64-k3", Layer(size=128, batch=4, channels=(64, 64), pads=0, extra=1, relu=True)),
    ("512-256-k2", Layer(size=32, batch=4, channels=(512, 256), kernel=2, pads=0, extra=1, relu=True)),
)
"""Layers with output_padding beyond the end pad, the first from pytorch/TensorRT issue 3352."""


def speed_cases() -> Iterator[Case]:
    """What the zero-extended kernel gains over the parser's own way, in float16 and int8."""
    for precision, dynamic in itertools.product(("fp16", "int8"), (False, True)):
        for name, layer in SPEED_LAYERS:
            quant = Quant(then=32) if precision == "int8" else None
            full = dataclasses.replace(layer, dynamic=dynamic, quant=quant)
            c_in, c_out = layer.channels
            title = f"{c_in}->{c_out} k{layer.kernel} s2 p0 op1, {layer.size}x{layer.size}, batch 4"
            yield Case(
                f"speed-{precision}-{'dynamic' if dynamic else 'static'}-{name}",
                "speed",
                f"{title}{', dynamic H/W' if dynamic else ''}, {precision}",
                functools.partial(make_layer, full),
                precision,
                limit=HALF if precision == "fp16" else ROUNDED,
                max_ratio=1 / 1.3 if precision == "fp16" else 1 / 2,
                half_io=True,
            )


_QUANT_LAYER = Layer(channels=(64, 32), kernel=4, pads=1)


def quant_case(name: str, title: str, quant: Quant, layer: Layer = _QUANT_LAYER, **more: Any) -> Case:
    """Makes an int8 case of one layer."""
    against = "rewritten" if quant.scales == "axis 0" else "original"
    full = dataclasses.replace(layer, quant=quant)
    make = functools.partial(make_layer, full)
    return Case(name, "quantized", title, make, "int8", limit=ROUNDED, against=against, **more)


def quantized_cases() -> Iterator[Case]:
    """Q/DQ around ConvTranspose in every spelling, in int8."""
    yield from _axis_cases()
    yield from _group_cases()
    yield from _spelling_cases()
    yield from _quantized_padding_cases()


def _axis_cases() -> Iterator[Case]:
    for rank, scales, weights, output in itertools.product(
        (1, 2, 3), ("tensor", "axis 1", "axis 0"), ("QDQ", "DQ"), (True, False)
    ):
        if rank != 2 and (weights == "DQ" and not output):
            continue
        layer = dataclasses.replace(_QUANT_LAYER, rank=rank, **_RANKS[rank])
        layer = dataclasses.replace(layer, channels=(64, 32))
        name = f"q{rank}d-{scales.replace(' ', '-')}-{weights.lower()}{'' if output else '-float-out'}"
        title = f"{rank}-D, weight {_spelled(weights)}, scales per {scales}{'' if output else ', output not quantised'}"
        adapter = rank == 2 and weights == "QDQ" and output
        yield quant_case(name, title, Quant(scales, weights, output=output), layer, by_adapter=adapter)
    square = dataclasses.replace(_QUANT_LAYER, channels=(32, 32))
    for weights in ("QDQ", "DQ"):
        title = f"2-D, weight {_spelled(weights)}, scales per axis 0, C_in = C_out"
        yield quant_case(f"q2d-axis-0-{weights.lower()}-square", title, Quant("axis 0", weights), square)


def _spelled(weights: str) -> str:
    return "float -> Q -> DQ" if weights == "QDQ" else "int8 -> DQ"


def _group_cases() -> Iterator[Case]:
    for (name, group), scales, rank in itertools.product(
        (("groups-2", 2), ("depthwise", 32)), ("tensor", "axis 1", "axis 0"), (2, 1)
    ):
        if rank == 1 and scales == "tensor":
            continue
        channels = (32, 32) if group == 32 else (64, 32)
        layer = dataclasses.replace(_QUANT_LAYER, group=group, rank=rank, **_RANKS[rank])
        layer = dataclasses.replace(layer, channels=channels)
        title = f"{rank}-D, {name.replace('-', ' ')}, scales per {scales}"
        yield quant_case(f"q{rank}d-{name}-{scales.replace(' ', '-')}", title, Quant(scales), layer)


def _spelling_cases() -> Iterator[Case]:
    for name, title, quant in (
        ("uint8-128-input", "activations uint8 around 128", Quant(input_zero="uint8 128")),
        ("uint8-128-weight", "weights uint8 around 128", Quant(weights="DQ", weight_zero="uint8 128")),
        (
            "uint8-128-both",
            "activations and weights uint8 around 128",
            Quant("tensor", "DQ", "uint8 128", "uint8 128"),
        ),
        ("asymmetric-3", "activations int8 around 3", Quant(input_zero="int8 3")),
        ("no-zero-weight", "weight DequantizeLinear without a zero point", Quant(weights="DQ", weight_zero="int8")),
        ("no-zero-input", "activations without a zero point, which means uint8", Quant(input_zero="uint8")),
        ("no-axis-qdq", "float -> Q -> DQ weights, no axis attribute", Quant(axis_written=False)),
        ("no-axis-dq", "int8 -> DQ weights, no axis attribute", Quant(weights="DQ", axis_written=False)),
        ("computed-scale", "weight scale out of a Mul", Quant(scale_computed=True)),
    ):
        yield quant_case(f"q2d-{name}", title, quant)
    bias = dataclasses.replace(_QUANT_LAYER, bias="int32")
    for weights in ("QDQ", "DQ"):
        title = f"bias int32 -> DQ, weight {_spelled(weights)}"
        yield quant_case(f"q2d-int32-bias-{weights.lower()}", title, Quant(weights=weights), bias)


def _quantized_padding_cases() -> Iterator[Case]:
    beyond = Layer(channels=(64, 32), pads=0, extra=1)
    for weights in ("QDQ", "DQ"):
        for scales in ("tensor", "axis 1", "axis 0"):
            name = f"q2d-op-beyond-{scales.replace(' ', '-')}-{weights.lower()}"
            title = f"output_padding 1 > end pad 0, weight {_spelled(weights)}, scales per {scales}"
            yield quant_case(name, title, Quant(scales, weights), beyond)
    title = "output_padding 1 > end pad 0, weights uint8 around 128"
    yield quant_case("q2d-op-beyond-uint8-128", title, Quant(weights="DQ", weight_zero="uint8 128"), beyond)
    same = Layer(channels=(64, 32), auto_pad="SAME_UPPER", extra=1)
    yield quant_case("q2d-same-upper-op-1", "auto_pad SAME_UPPER, output_padding 1, int8", Quant(), same)
    dilated = Layer(channels=(64, 32), dilation=2, pads=1)
    yield quant_case("q2d-dilation-2-stride-2", "dilation 2, stride 2, int8", Quant(), dilated)


RANDOM_CASES = 80


def random_cases() -> Iterator[Case]:
    """Nodes that nobody chose: every axis has a kernel, stride, dilation and pads of its own."""
    for seed in range(RANDOM_CASES):
        shape, weight, attrs = random_node(Random(seed))
        said = ", ".join(f"{name} {value}" for name, value in attrs.items())
        title = f"input {'x'.join(map(str, shape))}, weight {'x'.join(map(str, weight))}, {said}"
        make = functools.partial(make_random, seed)
        yield Case(f"random-{seed:02}", "random", title, make, max_ratio=math.inf)


def random_node(chance: Random) -> tuple[list[int], list[int], dict[str, Any]]:
    """Returns the shapes of input and weight, and the attributes of a ConvTranspose that ONNX allows."""
    rank = chance.choice([1, 2, 2, 2, 3])
    sizes = [chance.randint(4, 12) for _ in range(rank)]
    kernel = [chance.randint(1, 5) for _ in range(rank)]
    stride = [chance.randint(1, 3) for _ in range(rank)]
    dilation = [chance.choice([1, 1, 2]) for _ in range(rank)]
    extra = [chance.randrange(step) for step in stride]
    group, per_group = chance.choice([(1, 8), (1, 6), (2, 4), (8, 1)])
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "dilations": dilation, "group": group}
    attrs["output_padding"] = extra
    # ONNX's size before anything is cropped.
    full = [
        s * (n - 1) + e + (k - 1) * d + 1 for n, k, s, d, e in zip(sizes, kernel, stride, dilation, extra, strict=True)
    ]
    spelling = chance.choice(["pads", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "output_shape"])
    if spelling == "pads":
        attrs["pads"] = [chance.randint(0, 2) for _ in range(2 * rank)]
    elif spelling == "output_shape":
        attrs["output_shape"] = [each - chance.randint(0, min(3, each - 1)) for each in full]
        attrs["auto_pad"] = chance.choice(["NOTSET", "SAME_UPPER", "SAME_LOWER"])
    else:
        attrs["auto_pad"] = spelling
    channels = group * per_group
    return [2, channels, *sizes], [channels, chance.choice([4, 8, 6, 1]), *kernel], attrs


def make_random(seed: int) -> Sample:
    """Makes the model of `random_node`: two in three with a bias, some with sizes that range."""
    chance = Random(seed)
    shape, weight, attrs = random_node(chance)
    net = Net()
    dynamic = "output_shape" not in attrs and chance.random() < 0.5
    dims: list[int | str] | None = [*shape[:2], *(f"d{a}" for a in range(len(shape) - 2))] if dynamic else None
    net.input("x", net.random.standard_normal(shape).astype(np.float32), dims)
    inputs = ["x", net.constant("w", net.random.standard_normal(weight).astype(np.float32))]
    if chance.random() < 2 / 3:
        inputs.append(net.constant("b", net.random.standard_normal(weight[1] * attrs["group"]).astype(np.float32)))
    up = net.node("ConvTranspose", inputs, "up", **attrs)
    low, high = tuple(shape), (*shape[:2], *(2 * size for size in shape[2:]))
    return Sample(net.model(up), net.feeds, {"x": (low, low, high)} if dynamic else {})


NETWORK_SIZES: dict[str, tuple[dict[str, tuple[int, int, int]], tuple[str, ...]]] = {
    "unet": ({"batch": (1, 1, 1), "height": (64, 256, 512), "width": (64, 256, 512)}, ("fp32", "fp16")),
    "unet3d": (
        {"batch": (1, 1, 1), "depth": (16, 32, 48), "height": (16, 64, 96), "width": (16, 64, 96)},
        ("fp32", "fp16"),
    ),
    "super_resolution": ({"batch": (1, 1, 1), "height": (64, 128, 256), "width": (64, 128, 256)}, ("fp32", "fp16")),
    "quantized_autoencoder": (
        {"batch": (1, 1, 1), "height": (64, 256, 512), "width": (64, 256, 512)},
        ("int8", "fp16"),
    ),
    "vocoder": ({"batch": (1, 1, 1), "frames": (50, 200, 800)}, ("fp32", "fp16")),
    "gan_generator": ({"batch": (1, 4, 16)}, ("fp32", "fp16")),
}
"""Ranges of the dynamic dimensions of each network (it runs at the middle), and its precisions."""


def network_cases() -> Iterator[Case]:
    """The networks of models/, and what ONNX Runtime's quantizer makes of the U-Net."""
    for name, (_, precisions) in NETWORK_SIZES.items():
        for precision in precisions:
            quantized = name.startswith("quantized")
            what = "int8 and fp16" if quantized and precision == "fp16" else precision
            limit = NETWORK if quantized else {"fp32": EXACT, "fp16": HALF}[precision]
            make = functools.partial(make_network, name)
            yield Case(
                f"{name}-{precision}",
                "networks",
                f"models/{name}.onnx, {what}",
                make,
                precision,
                limit,
                max_ratio=1.05,
            )
    for name, title, options in (
        ("default", "the quantizer's defaults", {}),
        ("per-channel", "per channel", {"per_channel": True}),
        ("symmetric", "symmetric", {"extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}}),
        (
            "symmetric-per-channel",
            "symmetric, per channel",
            {"per_channel": True, "extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}},
        ),
    ):
        make = functools.partial(make_static, options)
        full = f"models/unet.onnx through quantize_static, {title}"
        yield Case(f"unet-static-{name}", "networks", full, make, "int8", NETWORK)


def make_network(name: str) -> Sample:
    """Loads a network of models/."""
    return _with_inputs(onnx.load(MODELS / f"{name}.onnx"), name)


def make_static(options: dict[str, Any]) -> Sample:
    """Quantises the U-Net as ONNX Runtime's own tool does it."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Batches(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            random = np.random.default_rng(5)
            batches = [random.standard_normal((1, 3, 64, 64)).astype(np.float32) for _ in range(4)]
            self._left = iter([{"x": batch} for batch in batches])

        def get_next(self) -> dict[str, Array] | None:
            return next(self._left, None)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "static.onnx"
        quantize_static(MODELS / "unet.onnx", path, Batches(), **options)
        return _with_inputs(onnx.load(path), "unet")


def _with_inputs(model: onnx.ModelProto, name: str) -> Sample:
    ranges = NETWORK_SIZES[name][0]
    random = np.random.default_rng(11)
    feeds, profile = {}, {}
    for value in model.graph.input:
        dims = [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        shapes = tuple(tuple(ranges[d][i] if isinstance(d, str) else d for d in dims) for i in range(3))
        profile[value.name] = (shapes[0], shapes[1], shapes[2])
        feeds[value.name] = random.standard_normal(shapes[1]).astype(np.float32)
    return Sample(model, feeds, profile)


def all_cases() -> dict[str, Case]:
    """Returns every case by name, in the order of the table."""
    everything = itertools.chain(speed_cases(), network_cases(), parser_cases(), quantized_cases(), random_cases())
    cases: dict[str, Case] = {}
    for case in everything:
        assert case.name not in cases, case.name
        cases[case.name] = case
    return cases
