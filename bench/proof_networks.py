"""Networks made at random: a few blocks of the kinds that people deploy, at dynamic height and width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSETS = (13, 17, 20)
CHANNELS = 8


class Maker:
    """A network in the making; `tensor` is what it has come to, of shape (N, 8, H, W)."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.opset = int(self.random.choice(OPSETS))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.kinds: list[str] = []
        self.tensor = "x"
        self.skips: dict[int, str] = {}
        self.level = 0

    def constant(self, values: Any) -> str:
        """Adds an initializer."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Adds a node; returns its first output."""
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"n{len(self.nodes)}", **attributes))
        return names[0]

    def normal(self, *shape: int) -> str:
        """Adds random weights."""
        return self.constant((self.random.standard_normal(shape) * 0.3).astype(np.float32))

    def convolution(self) -> None:
        """A convolution, perhaps grouped or dilated."""
        group, dilation = int(self.random.choice([1, 2, CHANNELS])), int(self.random.choice([1, 2]))
        weight, bias = self.normal(CHANNELS, CHANNELS // group, 3, 3), self.normal(CHANNELS)
        pads = [dilation] * 4
        self.tensor = self.add(
            "Conv", self.tensor, weight, bias, pads=pads, group=group, dilations=[dilation] * 2, kernel_shape=[3, 3]
        )

    def activation(self) -> None:
        """One of many."""
        op = str(self.random.choice(["Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Softplus", "HardSigmoid", "Selu"]))
        self.tensor = self.add(op, self.tensor)

    def normalization(self) -> None:
        """Batch or instance normalisation."""
        scale, bias = self.normal(CHANNELS), self.normal(CHANNELS)
        if self.random.random() < 0.5:
            self.tensor = self.add("InstanceNormalization", self.tensor, scale, bias)
            return
        mean, variance = self.normal(CHANNELS), self.constant(self.random.random(CHANNELS).astype(np.float32) + 0.5)
        self.tensor = self.add("BatchNormalization", self.tensor, scale, bias, mean, variance)

    def down(self) -> None:
        """Halves the size, and remembers a skip."""
        if self.level >= 2:
            return
        self.skips[self.level] = self.tensor
        self.level += 1
        op = str(self.random.choice(["MaxPool", "AveragePool"]))
        self.tensor = self.add(op, self.tensor, kernel_shape=[2, 2], strides=[2, 2])

    def up(self) -> None:
        """Doubles the size, and joins the skip."""
        if not self.level:
            return
        self.level -= 1
        kind = int(self.random.integers(4))
        if kind == 0:
            sizes = self.constant(np.array([1, 1, 2, 2], np.float32))
            mode = str(self.random.choice(["nearest", "linear", "cubic"]))
            how = str(self.random.choice(["half_pixel", "asymmetric"]))
            rounding: dict[str, Any] = {"nearest_mode": "floor"} if mode == "nearest" else {}
            large = self.add(
                "Resize", self.tensor, "", sizes, mode=mode, coordinate_transformation_mode=how, **rounding
            )
        elif kind == 1:
            weight = self.normal(CHANNELS * 4, CHANNELS, 1, 1)
            large = self.add("DepthToSpace", self.add("Conv", self.tensor, weight), blocksize=2, mode="CRD")
        else:
            spelling: dict[str, Any] = {"pads": [1, 1, 1, 1], "output_padding": [1, 1]}
            if kind == 3:
                spelling = {"auto_pad": "SAME_UPPER", "output_padding": [0, 0]}
            weight = self.normal(CHANNELS, CHANNELS, 3, 3)
            large = self.add("ConvTranspose", self.tensor, weight, strides=[2, 2], kernel_shape=[3, 3], **spelling)
        joined = self.add("Concat", self.skips[self.level], large, axis=1)
        self.tensor = self.add("Conv", joined, self.normal(CHANNELS, 2 * CHANNELS, 1, 1))

    def squeeze_excite(self) -> None:
        """Weighs channels by their means."""
        mean = self.add("GlobalAveragePool", self.tensor)
        gate = self.add("Sigmoid", self.add("Conv", mean, self.normal(CHANNELS, CHANNELS, 1, 1)))
        self.tensor = self.add("Mul", self.tensor, gate)

    def attention(self) -> None:
        """Self-attention over places, reshaped by sizes taken from the tensor."""
        if self.level < 2:
            return
        shape = self.add("Shape", self.tensor)
        flat = self.add("Reshape", self.tensor, self.constant(np.array([0, CHANNELS, -1], np.int64)))
        query = self.add("Transpose", flat, perm=[0, 2, 1])
        scores = self.add("Softmax", self.add("MatMul", query, flat), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", scores, query), perm=[0, 2, 1])
        self.tensor = self.add("Add", self.tensor, self.add("Reshape", mixed, shape))

    def shuffle(self) -> None:
        """Slices, turns and joins channels."""
        ends = [self.constant(np.array([n], np.int64)) for n in (0, CHANNELS // 2, CHANNELS, 1)]
        first = self.add("Slice", self.tensor, ends[0], ends[1], ends[3])
        second = self.add("Slice", self.tensor, ends[1], ends[2], ends[3])
        self.tensor = self.add("Concat", second, self.add("Neg", first), axis=1)

    def pad(self) -> None:
        """Pads and crops back."""
        mode = str(self.random.choice(["constant", "reflect", "edge"]))
        pads = self.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
        padded = self.add("Pad", self.tensor, pads, mode=mode)
        self.tensor = self.add("Conv", padded, self.normal(CHANNELS, CHANNELS, 3, 3), kernel_shape=[3, 3])

    def quantized(self) -> None:
        """A quantised convolution."""
        scale, zero = self.constant(np.float32(0.05)), self.constant(np.int8(0))
        values = self.add("DequantizeLinear", self.add("QuantizeLinear", self.tensor, scale, zero), scale, zero)
        steps = self.constant(self.random.integers(-127, 128, (CHANNELS, CHANNELS, 3, 3)).astype(np.int8))
        scales = self.constant((self.random.random(CHANNELS) * 0.004 + 0.001).astype(np.float32))
        zeros = self.constant(np.zeros(CHANNELS, np.int8))
        weight = self.add("DequantizeLinear", steps, scales, zeros, axis=0)
        self.tensor = self.add("Conv", values, weight, pads=[1, 1, 1, 1], kernel_shape=[3, 3])

    def clip(self) -> None:
        """Limits, powers and roots."""
        low, high = self.constant(np.float32(-3)), self.constant(np.float32(3))
        limited = self.add("Clip", self.tensor, low, high)
        squared = self.add("Pow", limited, self.constant(np.float32(2)))
        self.tensor = self.add("Sqrt", self.add("Add", squared, self.constant(np.float32(0.1))))

    def lines(self) -> None:
        """Means of lines, taken off."""
        if self.opset >= 18:
            mean = self.add("ReduceMean", self.tensor, self.constant(np.array([3], np.int64)), keepdims=1)
        else:
            mean = self.add("ReduceMean", self.tensor, axes=[3], keepdims=1)
        self.tensor = self.add("Sub", self.tensor, mean)

    def model(self) -> onnx.ModelProto:
        """Returns the finished network."""
        while self.level:
            self.up()
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", CHANNELS, "height", "width"])]
        outputs = [helper.make_tensor_value_info(self.tensor, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


BLOCKS: tuple[Callable[[Maker], None], ...] = (
    Maker.convolution,
    Maker.convolution,
    Maker.activation,
    Maker.activation,
    Maker.normalization,
    Maker.down,
    Maker.down,
    Maker.up,
    Maker.squeeze_excite,
    Maker.attention,
    Maker.shuffle,
    Maker.pad,
    Maker.quantized,
    Maker.clip,
    Maker.lines,
)


def network(seed: int) -> onnx.ModelProto:
    """Makes a network; the same seed makes the same one."""
    maker = Maker(seed)
    maker.convolution()
    for _ in range(int(maker.random.integers(4, 14))):
        BLOCKS[int(maker.random.integers(len(BLOCKS)))](maker)
    return maker.model()
