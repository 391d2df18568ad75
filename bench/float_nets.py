"""Nine float networks with deconvolutions, and inputs for them: what `bench/quantize.py` and its GPU twin quantise.

Weights are random, with channels that differ in size by a factor of ten as those of trained networks do; batch
normalisation has statistics taken from the inputs, so that values stay in range. Only numpy, onnx and ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[np.float32]
_OPSET = 17


class Writer:
    """A network that is written from its input to its output.

    Args:
        channels: Channels of the input.
        sizes: Its spatial sizes: names for dynamic ones.
        seed: Of the weights.
    """

    def __init__(self, channels: int, sizes: Sequence[str | int], seed: int) -> None:
        self.rank = len(sizes)
        self.channels = {"x": channels}
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", channels, *sizes])]

    def conv(self, x: str, channels: int, kernel: int = 3, stride: int = 1, groups: int = 1, bias: bool = True) -> str:
        """Adds a Conv that keeps the size, or divides it by the stride."""
        attrs = self._window(kernel, stride, [(kernel - 1) // 2] * self.rank * 2, groups)
        shape = (channels, self.channels[x] // groups, *[kernel] * self.rank)
        fan = shape[1] * kernel**self.rank
        return self._layer("Conv", x, channels, self._spread(shape, 0, fan), bias, attrs)

    def deconv(
        self,
        x: str,
        channels: int,
        kernel: int,
        stride: int,
        pad: int = 0,
        op: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> str:
        """Adds a ConvTranspose."""  # fmt: skip
        attrs = self._window(kernel, stride, [pad] * self.rank * 2, groups)
        if op:
            attrs["output_padding"] = [op] * self.rank
        shape = (self.channels[x], channels // groups, *[kernel] * self.rank)
        fan = max(1.0, shape[0] // groups * (kernel / stride) ** self.rank)
        return self._layer("ConvTranspose", x, channels, self._spread(shape, 1, fan), bias, attrs)

    def norm(self, x: str) -> str:
        """Adds a BatchNormalization; `calibrated` gives it its statistics."""
        count = self.channels[x]
        gamma = self._random.uniform(0.5, 1.5, count)
        terms = [gamma, self._random.normal(0, 0.2, count), np.zeros(count), np.ones(count)]
        names = [self._constant(term, f"bn{len(self._nodes)}") for term in terms]
        return self.node("BatchNormalization", [x, *names], count)

    def relu(self, x: str) -> str:
        """Adds a Relu."""
        return self.node("Relu", [x], self.channels[x])

    def block(self, x: str, channels: int) -> str:
        """Adds Conv, BatchNormalization and Relu."""
        return self.relu(self.norm(self.conv(x, channels, bias=False)))

    def pool(self, x: str) -> str:
        """Adds a MaxPool that halves the size."""
        two = [2] * self.rank
        return self.node("MaxPool", [x], self.channels[x], kernel_shape=two, strides=two)

    def concat(self, *xs: str) -> str:
        """Adds a Concat of channels."""
        return self.node("Concat", list(xs), sum(self.channels[x] for x in xs), axis=1)

    def node(self, op: str, inputs: list[str], channels: int, **attrs: Any) -> str:
        """Adds any node."""
        name = f"{op.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], f"/{name}", **attrs))
        self.channels[name] = channels
        return name

    def model(self, output: str) -> onnx.ModelProto:
        """Returns the network."""
        self._nodes[-1].output[0] = "y"
        value = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        assert output == self._nodes[-1].name[1:]
        graph = helper.make_graph(self._nodes, "net", self._inputs, [value], self._weights)
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", _OPSET)])
        return onnx.shape_inference.infer_shapes(model)

    def _window(self, kernel: int, stride: int, pads: list[int], groups: int) -> dict[str, Any]:
        each = self.rank
        return {"kernel_shape": [kernel] * each, "strides": [stride] * each, "pads": pads, "group": groups}

    def _layer(self, op: str, x: str, channels: int, weight: Array, bias: bool, attrs: dict[str, Any]) -> str:
        names = [x, self._constant(weight, f"w{len(self._nodes)}")]
        if bias:
            names.append(self._constant(self._random.normal(0, 0.05, channels), f"b{len(self._nodes)}"))
        return self.node(op, names, channels, **attrs)

    def _spread(self, shape: Sequence[int], axis: int, fan: float) -> Array:
        """Returns weights whose output channels differ in size, and that have some outliers, as trained ones do."""
        values = self._random.standard_t(6, shape) * np.sqrt(1.5 / fan)
        sizes = 10 ** self._random.uniform(-0.6, 0.3, shape[axis])
        return (values * sizes.reshape([-1 if i == axis else 1 for i in range(len(shape))])).astype(np.float32)

    def _constant(self, values: Any, name: str) -> str:
        fresh = f"{name}_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(values, np.float32), fresh))
        return fresh


def ae2d(seed: int = 0) -> onnx.ModelProto:
    """A 2-D autoencoder: strided convolutions, then k4 s2 p1 deconvolutions with batch normalisation."""
    net = Writer(3, ("height", "width"), 1 + seed)
    x = "x"
    for channels in (32, 64):
        x = net.relu(net.norm(net.conv(x, channels, stride=2, bias=False)))
    x = net.relu(net.norm(net.deconv(x, 32, 4, 2, 1, bias=False)))
    return net.model(net.deconv(x, 3, 4, 2, 1))


def _unet(net: Writer, up: Callable[[str, int], str], widths: Sequence[int], out: int) -> onnx.ModelProto:
    x, skips = "x", []
    for channels in widths[:-1]:
        x = net.block(x, channels)
        skips.append(x)
        x = net.pool(x)
    x = net.block(x, widths[-1])
    for channels, skip in zip(reversed(widths[:-1]), reversed(skips), strict=True):
        x = net.block(net.concat(up(x, channels), skip), channels)
    return net.model(net.conv(x, out, 1))


def unet2d(seed: int = 0) -> onnx.ModelProto:
    """A U-Net with k2 s2 deconvolutions and two skips."""
    net = Writer(3, ("height", "width"), 2 + seed)
    return _unet(net, lambda x, channels: net.deconv(x, channels, 2, 2), (32, 64, 128), 4)


def narrow_unet2d(seed: int = 0) -> onnx.ModelProto:
    """The same with half the channels."""
    net = Writer(3, ("height", "width"), 2 + seed)
    return _unet(net, lambda x, channels: net.deconv(x, channels, 2, 2), (16, 32, 64), 4)


def unet_op(seed: int = 0) -> onnx.ModelProto:
    """A U-Net with k3 s2 p1 op1 deconvolutions, normalised and rectified before the skips join."""
    net = Writer(3, ("height", "width"), 3 + seed)

    def up(x: str, channels: int) -> str:
        return net.relu(net.norm(net.deconv(x, channels, 3, 2, 1, 1, bias=False)))

    return _unet(net, up, (24, 48, 96), 2)


def beyond(seed: int = 0) -> onnx.ModelProto:
    """A decoder of k3 s2 p0 op1 deconvolutions, whose output_padding is beyond the end pad."""
    net = Writer(16, ("height", "width"), 4 + seed)
    x = net.relu(net.conv("x", 64))
    x = net.relu(net.deconv(x, 32, 3, 2, 0, 1))
    x = net.relu(net.deconv(x, 32, 3, 2, 0, 1))
    return net.model(net.conv(x, 8, 3))


def vocoder1d(seed: int = 0) -> onnx.ModelProto:
    """A 1-D upsampler: k16 s8 p4 and k4 s2 p1 deconvolutions with LeakyReLU and residual blocks."""
    net = Writer(40, ("time",), 5 + seed)
    x = net.conv("x", 64, 7)
    for channels, kernel, stride in ((48, 16, 8), (32, 4, 2)):
        x = net.node("LeakyRelu", [x], net.channels[x], alpha=0.1)
        x = net.deconv(x, channels, kernel, stride, (kernel - stride) // 2)
        inner = net.conv(net.node("LeakyRelu", [x], channels, alpha=0.1), channels, 3)
        x = net.node("Add", [inner, x], channels)
    return net.model(net.node("Tanh", [net.conv(net.node("LeakyRelu", [x], 32, alpha=0.1), 1, 7)], 1))


def unet3d(seed: int = 0) -> onnx.ModelProto:
    """A 3-D U-Net with k2 s2 deconvolutions."""
    net = Writer(2, ("depth", "height", "width"), 6 + seed)
    return _unet(net, lambda x, channels: net.deconv(x, channels, 2, 2), (16, 32), 3)


def grouped(seed: int = 0) -> onnx.ModelProto:
    """Deconvolutions with 4 groups and depthwise, between depthwise-separable convolutions."""
    net = Writer(3, ("height", "width"), 7 + seed)
    x = net.block("x", 32)
    x = net.relu(net.norm(net.conv(x, 32, stride=2, groups=32, bias=False)))
    x = net.block(net.pool(x), 64)
    x = net.relu(net.norm(net.deconv(x, 64, 4, 2, 1, groups=4, bias=False)))
    x = net.relu(net.conv(x, 32, 1))
    x = net.relu(net.deconv(x, 32, 4, 2, 1, groups=32))
    return net.model(net.conv(x, 8, 1))


def residual(seed: int = 0) -> onnx.ModelProto:
    """A residual encoder and decoder: deconvolution, batch normalisation, and Add of an enlarged shortcut."""
    net = Writer(3, ("height", "width"), 8 + seed)
    x = net.block("x", 32)
    for _ in range(2):
        inner = net.norm(net.conv(net.block(x, 32), 32, bias=False))
        x = net.relu(net.node("Add", [inner, x], 32))
    x = net.relu(net.norm(net.conv(x, 64, stride=2, bias=False)))
    up = net.norm(net.deconv(x, 32, 4, 2, 1, bias=False))
    short = net.deconv(x, 32, 2, 2)
    x = net.relu(net.node("Add", [up, short], 32))
    return net.model(net.deconv(x, 3, 2, 2))


def last10(seed: int = 0) -> onnx.ModelProto:
    """An encoder and decoder whose last deconvolution goes from 64 channels to 10 classes."""
    net = Writer(1, ("height", "width"), 9 + seed)
    x = net.block(net.pool(net.block("x", 32)), 64)
    x = net.relu(net.norm(net.deconv(x, 64, 2, 2, bias=False)))
    return net.model(net.deconv(x, 10, 1, 1))


NETS: dict[str, tuple[Callable[[int], onnx.ModelProto], tuple[tuple[int, ...], ...]]] = {
    "ae2d": (ae2d, ((1, 3, 64, 64), (1, 3, 32, 48))),
    "unet2d": (unet2d, ((1, 3, 64, 64), (1, 3, 32, 48))),
    "unet-op": (unet_op, ((1, 3, 64, 64), (1, 3, 32, 48))),
    "beyond": (beyond, ((1, 16, 24, 24), (1, 16, 12, 20))),
    "vocoder1d": (vocoder1d, ((1, 40, 64), (1, 40, 40))),
    "unet3d": (unet3d, ((1, 2, 16, 32, 32), (1, 2, 8, 16, 24))),
    "grouped": (grouped, ((1, 3, 64, 64), (1, 3, 32, 48))),
    "residual": (residual, ((1, 3, 64, 64), (1, 3, 32, 48))),
    "last10": (last10, ((1, 1, 64, 64), (1, 1, 32, 48))),
}
"""Name to what writes the network, and the sizes of its samples."""


def sample(shape: Sequence[int], seed: int) -> Array:
    """Returns an input: smooth fields with edges, of unit size, rather than white noise."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape)
    for axis in range(2, len(shape)):
        for _ in range(3):
            values = values + np.roll(values, 1, axis) + np.roll(values, -1, axis)
    values /= values.std()
    start = [int(random.integers(0, size // 2)) for size in shape[2:]]
    inside = tuple(slice(at, at + size // 2) for at, size in zip(start, shape[2:], strict=True))
    box = (slice(None), slice(None), *inside)
    values[box] += random.uniform(-2, 2, (1, shape[1], *[1] * (len(shape) - 2)))
    noisy: Array = (values + 0.2 * random.standard_normal(shape)).astype(np.float32)
    return noisy


def samples(name: str, count: int, seed: int = 0) -> list[dict[str, Array]]:
    """Returns inputs of a network, at its sizes in turns."""
    shapes = NETS[name][1]
    return [{"x": sample(shapes[number % len(shapes)], seed + number)} for number in range(count)]


def make(name: str, seed: int = 0) -> onnx.ModelProto:
    """Returns a network whose batch normalisation has the statistics of its inputs."""
    model = NETS[name][0](seed)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    feeds = samples(name, 4, seed=10_000)
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            mean, variance = _moments(model, node.input[0], feeds)
            weights[node.input[3]].CopyFrom(numpy_helper.from_array(mean, node.input[3]))
            weights[node.input[4]].CopyFrom(numpy_helper.from_array(variance, node.input[4]))
    return model


def _moments(model: onnx.ModelProto, tensor: str, feeds: Sequence[Mapping[str, Array]]) -> tuple[Array, Array]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.append(onnx.ValueInfoProto(name=tensor))
    session = onnxruntime.InferenceSession(copy.SerializeToString(), providers=["CPUExecutionProvider"])
    values = [np.moveaxis(session.run([tensor], dict(each))[0], 1, 0) for each in feeds]
    flat = np.concatenate([each.reshape(each.shape[0], -1) for each in values], axis=1)
    return flat.mean(axis=1), flat.var(axis=1)
