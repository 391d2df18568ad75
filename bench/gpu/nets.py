"""Models for the GPU: a layer in any spelling of a transposed convolution, with and without Q/DQ, and whole networks.

Each makes its model and its inputs from fixed seeds. Channels have strongly different scales and inputs lie well away
from the rounding edges of their quantisers, so that a wrong axis, scale or shift is far above any rounding.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
sys.path.append(str(ROOT / "tests"))  # for `support`
OPSET, IR_VERSION = 17, 8


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
    """Runs a model on ONNX Runtime on the CPU; values that it has no input for are left out."""
    from support.session import session

    loaded = session(model, threads=threads)
    wanted = {each.name for each in loaded.get_inputs()}
    return list(loaded.run(None, {name: values for name, values in feeds.items() if name in wanted}))


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


def make_network(name: str) -> Sample:
    """Loads a network of models/."""
    return _with_inputs(onnx.load(MODELS / f"{name}.onnx"), name)


def make_static(options: dict[str, Any]) -> Sample:
    """Quantises the U-Net as ONNX Runtime's own tool does it."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Batches(CalibrationDataReader):
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
