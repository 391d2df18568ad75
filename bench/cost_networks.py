"""Nine networks that people deploy, written node by node with random weights, at their full size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Writer:
    """A model in the making. Methods add nodes and return the name of the result."""

    def __init__(self, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.input = helper.make_tensor_value_info("x", dtype, shape)

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        """Adds any node."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], f"{kind}_{len(self.nodes)}", **attributes))
        return name

    def constant(self, values: object) -> str:
        """Adds an initializer."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def normal(self, *shape: int) -> str:
        """Adds weights that keep the magnitude of what they are multiplied with."""
        fan = math.prod(shape[1:]) if len(shape) > 2 else shape[0]
        return self.constant((self.random.standard_normal(shape, np.float32) * math.sqrt(2 / fan)).astype(np.float32))

    def small(self, size: int, around: float = 0.0) -> str:
        """Adds a bias, or scales."""
        return self.constant((around + 0.1 * self.random.standard_normal(size, np.float32)).astype(np.float32))

    def conv(self, x: str, ins: int, outs: int, k: int, stride: int = 1, group: int = 1, rank: int = 2) -> str:
        """Adds a convolution that keeps sizes, or divides them by the stride."""
        pad = k // 2 if k > stride else 0
        kernel = self.normal(outs, ins // group, *[k] * rank)
        return self.op("Conv", x, kernel, self.small(outs), strides=[stride] * rank, pads=[pad] * 2 * rank, group=group)

    def up(self, x: str, ins: int, outs: int, rank: int = 2) -> str:
        """Adds a transposed convolution that doubles sizes."""
        return self.op("ConvTranspose", x, self.normal(ins, outs, *[2] * rank), self.small(outs), strides=[2] * rank)

    def batch_norm(self, x: str, size: int) -> str:
        """Adds a batch normalisation."""
        one = self.small(size, 1.0), self.small(size), self.small(size)
        return self.op("BatchNormalization", x, *one, self.constant(np.full(size, 1.5, np.float32)))

    def layer_norm(self, x: str, size: int) -> str:
        """Adds a layer normalisation over the last axis."""
        return self.op("LayerNormalization", x, self.small(size, 1.0), self.small(size), axis=-1)

    def linear(self, x: str, ins: int, outs: int) -> str:
        """Adds a matrix product and a bias."""
        return self.op("Add", self.op("MatMul", x, self.normal(ins, outs)), self.small(outs))

    def gelu(self, x: str) -> str:
        """Adds a Gelu, spelled with Erf."""
        root, one, half = (self.constant(np.float32(v)) for v in (math.sqrt(2), 1, 0.5))
        grown = self.op("Add", self.op("Erf", self.op("Div", x, root)), one)
        return self.op("Mul", self.op("Mul", x, grown), half)

    def shaped(self, x: str, *sizes: int) -> str:
        """Adds a Reshape."""
        return self.op("Reshape", x, self.constant(np.array(sizes, np.int64)))

    def tokens(self, x: str, size: int) -> str:
        """Turns an image into a sequence."""
        return self.op("Transpose", self.shaped(x, 1, size, -1), perm=[0, 2, 1])

    def image(self, x: str, size: int, height: int) -> str:
        """Turns a sequence into an image."""
        return self.shaped(self.op("Transpose", x, perm=[0, 2, 1]), 1, size, height, -1)

    def heads(self, x: str, size: int, count: int) -> str:
        """Splits the last axis into heads, which come first."""
        return self.op("Transpose", self.shaped(x, 1, -1, count, size // count), perm=[0, 2, 1, 3])

    def attention(self, x: str, size: int, count: int, context: str = "") -> str:
        """Adds an attention of several heads, and its projection."""
        query = self.heads(self.linear(x, size, size), size, count)
        key, value = (self.heads(self.linear(context or x, size, size), size, count) for _ in range(2))
        scores = self.op("MatMul", query, self.op("Transpose", key, perm=[0, 1, 3, 2]))
        shares = self.op("Softmax", self.op("Div", scores, self.constant(np.float32(math.sqrt(size / count)))), axis=-1)
        joined = self.shaped(self.op("Transpose", self.op("MatMul", shares, value), perm=[0, 2, 1, 3]), 1, -1, size)
        return self.linear(joined, size, size)

    def block(self, x: str, size: int, count: int) -> str:
        """Adds a block of a transformer, normalised first."""
        x = self.op("Add", x, self.attention(self.layer_norm(x, size), size, count))
        inner = self.gelu(self.linear(self.layer_norm(x, size), size, 4 * size))
        return self.op("Add", x, self.linear(inner, 4 * size, size))

    def down(self, x: str, ins: int, widths: Sequence[int], convolutions: int = 1) -> tuple[str, list[str]]:
        """Adds the first half of a U-Net; returns its result, and the skips."""
        skips = []
        for width in widths:
            for size in (ins, *[width] * (convolutions - 1)):
                x = self.op("Relu", self.conv(x, size, width, 3))
            skips.append(x)
            x, ins = self.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), width
        return x, skips

    def back(self, x: str, wide: int, widths: Sequence[int], skips: Sequence[str]) -> str:
        """Adds the second half of a U-Net, which joins the skips."""
        for width, skip in zip(reversed(widths), reversed(skips), strict=True):
            x, wide = self.op("Concat", self.up(x, wide, width), skip, axis=1), width
            x = self.op("Relu", self.conv(x, 2 * width, width, 3))
        return x

    def model(self, output: str, rank: int) -> onnx.ModelProto:
        """Returns the model."""
        self.nodes.append(helper.make_node("Identity", [output], ["y"], "output"))
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)
        graph = helper.make_graph(self.nodes, "g", [self.input], [result], self.weights)
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def resnet50() -> onnx.ModelProto:
    """ResNet-50 at 512x512."""
    w = Writer((1, 3, 512, 512))
    x = w.op("Relu", w.batch_norm(w.conv("x", 3, 64, 7, 2), 64))
    x, ins = w.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for depth, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for number in range(depth):
            step = stride if number == 0 else 1
            y = w.op("Relu", w.batch_norm(w.conv(x, ins, width, 1), width))
            y = w.op("Relu", w.batch_norm(w.conv(y, width, width, 3, step), width))
            y = w.batch_norm(w.conv(y, width, 4 * width, 1), 4 * width)
            skip = x if number else w.batch_norm(w.conv(x, ins, 4 * width, 1, step), 4 * width)
            x, ins = w.op("Relu", w.op("Add", y, skip)), 4 * width
    return w.model(w.linear(w.op("Flatten", w.op("GlobalAveragePool", x)), 2048, 1000), 2)


def convnext() -> onnx.ModelProto:
    """ConvNeXt-T at 512x512."""
    w = Writer((1, 3, 512, 512))
    x, ins = w.conv("x", 3, 96, 4, 4), 96
    for stage, (depth, width) in enumerate(((3, 96), (3, 192), (9, 384), (3, 768))):
        if stage:
            x = w.conv(
                w.op("Transpose", w.layer_norm(w.op("Transpose", x, perm=[0, 2, 3, 1]), ins), perm=[0, 3, 1, 2]),
                ins,
                width,
                2,
                2,
            )
        for _ in range(depth):
            y = w.layer_norm(w.op("Transpose", w.conv(x, width, width, 7, group=width), perm=[0, 2, 3, 1]), width)
            y = w.linear(w.gelu(w.linear(y, width, 4 * width)), 4 * width, width)
            x = w.op("Add", x, w.op("Transpose", w.op("Mul", y, w.small(width)), perm=[0, 3, 1, 2]))
        ins = width
    return w.model(w.linear(w.op("Flatten", w.op("GlobalAveragePool", x)), 768, 1000), 2)


def vit_b() -> onnx.ModelProto:
    """ViT-B/16 at 512x512: 1,025 tokens."""
    w = Writer((1, 3, 512, 512))
    x = w.tokens(w.conv("x", 3, 768, 16, 16), 768)
    x = w.op("Add", w.op("Concat", w.normal(1, 1, 768), x, axis=1), w.normal(1, 1025, 768))
    for _ in range(12):
        x = w.block(x, 768, 12)
    first = w.op("Gather", w.layer_norm(x, 768), w.constant(np.int64(0)), axis=1)
    return w.model(w.linear(first, 768, 1000), 2)


def bert(tokens: int, words: int, width: int, depth: int, heads: int, outs: int) -> onnx.ModelProto:
    """An encoder of text, normalised last."""
    w = Writer((1, tokens), TensorProto.INT64)
    x = w.op("Add", w.op("Gather", w.normal(words, width), "x"), w.normal(1, tokens, width))
    x = w.layer_norm(x, width)
    for _ in range(depth):
        x = w.layer_norm(w.op("Add", x, w.attention(x, width, heads)), width)
        inner = w.gelu(w.linear(x, width, 4 * width))
        x = w.layer_norm(w.op("Add", x, w.linear(inner, 4 * width, width)), width)
    return w.model(w.linear(x, width, outs), 3)


def bert_base() -> onnx.ModelProto:
    """BERT-base at 384 tokens."""
    return bert(384, 30522, 768, 12, 12, 2)


def vgg16() -> onnx.ModelProto:
    """VGG-16 at 512x512, with the mean of places before its three large products."""
    w = Writer((1, 3, 512, 512))
    x, ins = "x", 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            x, ins = w.op("Relu", w.conv(x, ins, width, 3)), width
        x = w.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = w.op("Flatten", w.op("AveragePool", x, kernel_shape=[4, 4], strides=[2, 2]))
    for ins, outs in ((512 * 49, 4096), (4096, 4096)):
        x = w.op("Relu", w.linear(x, ins, outs))
    return w.model(w.linear(x, 4096, 1000), 2)


def _unet(w: Writer, rank: int, widths: Sequence[int]) -> str:
    def twice(x: str, ins: int, outs: int) -> str:
        for size in (ins, outs):
            x = w.op("Relu", w.batch_norm(w.conv(x, size, outs, 3, rank=rank), outs))
        return x

    x, ins, skips = "x", 3 if rank == 2 else 1, []
    for width in widths[:-1]:
        x, ins = twice(x, ins, width), width
        skips.append(x)
        x = w.op("MaxPool", x, kernel_shape=[2] * rank, strides=[2] * rank)
    x = twice(x, ins, widths[-1])
    for wide, width in zip(widths[:0:-1], widths[-2::-1], strict=True):
        x = twice(w.op("Concat", w.up(x, wide, width, rank), skips.pop(), axis=1), 2 * width, width)
    return w.conv(x, widths[0], 2, 1, rank=rank)


def unet() -> onnx.ModelProto:
    """The U-Net of 31 million weights at 512x512."""
    w = Writer((1, 3, 512, 512))
    return w.model(_unet(w, 2, (64, 128, 256, 512, 1024)), 4)


def unet_3d() -> onnx.ModelProto:
    """A 3-D U-Net at 64x128x128."""
    w = Writer((1, 1, 64, 128, 128))
    return w.model(_unet(w, 3, (16, 32, 64, 128)), 5)


def edsr() -> onnx.ModelProto:
    """EDSR baseline, doubling 512x512."""
    w = Writer((1, 3, 512, 512))
    head = x = w.conv("x", 3, 64, 3)
    for _ in range(16):
        x = w.op("Add", x, w.conv(w.op("Relu", w.conv(x, 64, 64, 3)), 64, 64, 3))
    x = w.op("Add", head, w.conv(x, 64, 64, 3))
    x = w.op("DepthToSpace", w.conv(x, 64, 256, 3), blocksize=2, mode="CRD")
    return w.model(w.conv(x, 64, 3, 3), 4)


def segformer() -> onnx.ModelProto:
    """SegFormer-B0 at 512x512."""
    w = Writer((1, 3, 512, 512))
    x, ins, side, maps = "x", 3, 512, []
    for width, count, ratio, k, stride in ((32, 1, 8, 7, 4), (64, 2, 4, 3, 2), (160, 5, 2, 3, 2), (256, 8, 1, 3, 2)):
        side //= stride
        t = w.layer_norm(w.tokens(w.conv(x, ins, width, k, stride), width), width)
        for _ in range(2):
            n = w.layer_norm(t, width)
            reduced = w.conv(w.image(n, width, side), width, width, ratio, ratio) if ratio > 1 else ""
            context = w.layer_norm(w.tokens(reduced, width), width) if reduced else ""
            t = w.op("Add", t, w.attention(n, width, count, context))
            y = w.image(w.linear(w.layer_norm(t, width), width, 4 * width), 4 * width, side)
            y = w.gelu(w.tokens(w.conv(y, 4 * width, 4 * width, 3, group=4 * width), 4 * width))
            t = w.op("Add", t, w.linear(y, 4 * width, width))
        x, ins = w.image(w.layer_norm(t, width), width, side), width
        scales = w.constant(np.array([1, 1, 128 // side, 128 // side], np.float32))
        maps.append(w.op("Resize", w.conv(x, width, 256, 1), "", scales, mode="linear"))
    joined = w.op("Relu", w.batch_norm(w.conv(w.op("Concat", *maps, axis=1), 1024, 256, 1), 256))
    return w.model(w.conv(joined, 256, 150, 1), 4)


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "ResNet-50": resnet50,
    "ConvNeXt-T": convnext,
    "ViT-B": vit_b,
    "BERT-base": bert_base,
    "VGG-16": vgg16,
    "U-Net 31 M": unet,
    "EDSR": edsr,
    "SegFormer-B0": segformer,
    "U-Net 3-D": unet_3d,
}
