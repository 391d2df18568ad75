"""Fourteen small networks that bench/quantize.py quantises, seven of them with attention; weights are random.

Channels differ in size, as those of trained networks do: outputs of layers by up to ten, and a few of a normalisation
by up to thirty, as in transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from cost_networks import Writer as PlainWriter
from onnx import TensorProto, numpy_helper

Inputs = list[dict[str, np.ndarray]]
_SPREAD = 0.5
"""Standard deviation of the logarithms of the sizes of a layer's channels."""


class Writer(PlainWriter):
    """A writer whose channels differ in size."""

    def __init__(self, shape: Sequence[int], seed: int, dtype: int = TensorProto.FLOAT) -> None:
        super().__init__(shape, dtype)
        self.random = np.random.default_rng(seed)

    def normal(self, *shape: int) -> str:
        """Adds weights; those of an output channel share a size."""
        name = super().normal(*shape)
        values = numpy_helper.to_array(self.weights[-1])
        axis = 0 if len(shape) > 2 else -1
        sizes = np.exp(_SPREAD * self.random.standard_normal(shape[axis]))
        wide = sizes.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
        self.weights[-1] = numpy_helper.from_array((values * wide).astype(np.float32), name)
        return name

    def layer_norm(self, x: str, size: int) -> str:
        """Adds a layer normalisation, of whose channels a few are large."""
        scale = np.exp(0.2 * self.random.standard_normal(size))
        scale[self.random.integers(0, size, max(1, size // 48))] *= self.random.uniform(5, 30)
        return self.op("LayerNormalization", x, self.constant(scale.astype(np.float32)), self.small(size), axis=-1)

    def relu(self, x: str) -> str:
        """Adds a rectifier."""
        return self.op("Relu", x)


def autoencoder(seed: int) -> onnx.ModelProto:
    w = Writer((1, 3, 64, 64), seed)
    x = w.relu(w.conv(w.relu(w.conv("x", 3, 32, 3, 2)), 32, 64, 3, 2))
    x = w.relu(w.up(x, 64, 32))
    return w.model(w.conv(w.relu(w.up(x, 32, 16)), 16, 4, 3), 4)


def unet(seed: int) -> onnx.ModelProto:
    w = Writer((1, 3, 64, 64), seed)
    x, skips = w.down("x", 3, (24, 48))
    x = w.back(w.relu(w.conv(x, 48, 96, 3)), 96, (24, 48), skips)
    return w.model(w.conv(x, 24, 4, 1), 4)


def unet_attention(seed: int) -> onnx.ModelProto:
    w = Writer((1, 3, 32, 32), seed)
    x, skips = w.down("x", 3, (32, 48))
    x = w.conv(x, 48, 48, 3)
    x = w.image(w.block(w.tokens(x, 48), 48, 4), 48, 8)
    x = w.back(x, 48, (32, 48), skips)
    return w.model(w.conv(x, 32, 4, 1), 4)


def residual(seed: int) -> onnx.ModelProto:
    w = Writer((1, 3, 64, 64), seed)
    one = w.relu(w.conv("x", 3, 32, 3))
    two = w.relu(w.conv(one, 32, 64, 3, 2))
    x = w.relu(w.op("Add", w.conv(w.relu(w.conv(two, 64, 64, 3)), 64, 64, 3), two))
    return w.model(w.conv(w.relu(w.op("Add", w.up(x, 64, 32), one)), 32, 4, 3), 4)


def resnet(seed: int) -> onnx.ModelProto:
    w = Writer((1, 3, 64, 64), seed)
    x = w.op("MaxPool", w.relu(w.conv("x", 3, 32, 7, 2)), kernel_shape=[2, 2], strides=[2, 2])
    for _ in range(3):
        x = w.relu(w.op("Add", w.conv(w.relu(w.conv(x, 32, 32, 3)), 32, 32, 3), x))
    return w.model(w.linear(w.op("Flatten", w.op("GlobalAveragePool", x)), 32, 20), 2)


def generator(seed: int) -> onnx.ModelProto:
    w = Writer((1, 32), seed)
    x, ins = w.op("Reshape", w.linear("x", 32, 64 * 16), w.constant(np.array([1, 64, 4, 4], np.int64))), 64
    for width in (48, 32, 16):
        x, ins = w.relu(w.up(x, ins, width)), width
    return w.model(w.op("Tanh", w.conv(x, 16, 4, 3)), 4)


def vocoder(seed: int) -> onnx.ModelProto:
    w = Writer((1, 40, 32), seed)
    x, ins = w.conv("x", 40, 64, 7, rank=1), 64
    for width in (48, 32):
        x, ins = w.up(w.op("LeakyRelu", x, alpha=0.1), ins, width, rank=1), width
        x = w.op("Add", w.conv(w.op("LeakyRelu", x, alpha=0.1), width, width, 3, rank=1), x)
    return w.model(w.op("Tanh", w.conv(w.op("LeakyRelu", x, alpha=0.1), 32, 1, 7, rank=1)), 3)


def perceptron(seed: int) -> onnx.ModelProto:
    w = Writer((8, 64), seed)
    return w.model(w.linear(w.relu(w.linear(w.relu(w.linear("x", 64, 128)), 128, 128)), 128, 10), 2)


def vit(seed: int) -> onnx.ModelProto:
    w = Writer((1, 3, 64, 64), seed)
    x = w.op("Add", w.tokens(w.conv("x", 3, 96, 8, 8), 96), w.normal(1, 64, 96))
    for _ in range(2):
        x = w.block(x, 96, 4)
    return w.model(w.linear(w.op("ReduceMean", w.layer_norm(x, 96), axes=[1], keepdims=0), 96, 20), 2)


def vit_decoder(seed: int) -> onnx.ModelProto:
    w = Writer((1, 3, 64, 64), seed)
    x = w.block(w.op("Add", w.tokens(w.conv("x", 3, 96, 8, 8), 96), w.normal(1, 64, 96)), 96, 4)
    x = w.relu(w.up(w.image(w.layer_norm(x, 96), 96, 8), 96, 48))
    return w.model(w.conv(w.relu(w.up(x, 48, 32)), 32, 4, 3), 4)


def bert(seed: int) -> onnx.ModelProto:
    w = Writer((1, 32), seed, TensorProto.INT64)
    x = w.layer_norm(w.op("Add", w.op("Gather", w.normal(200, 96), "x"), w.normal(1, 32, 96)), 96)
    for _ in range(2):
        x = w.layer_norm(w.op("Add", x, w.attention(x, 96, 4)), 96)
        x = w.layer_norm(w.op("Add", x, w.linear(w.gelu(w.linear(x, 96, 384)), 384, 96)), 96)
    return w.model(w.linear(x, 96, 9), 3)


def gpt(seed: int) -> onnx.ModelProto:
    w = Writer((1, 32), seed, TensorProto.INT64)
    x = w.op("Add", w.op("Gather", w.normal(200, 96), "x"), w.normal(1, 32, 96))
    for _ in range(2):
        x = w.block(x, 96, 4)
    return w.model(w.linear(w.layer_norm(x, 96), 96, 50), 3)


def segformer(seed: int) -> onnx.ModelProto:
    w = Writer((1, 3, 64, 64), seed)
    x, ins, side, maps = "x", 3, 64, []
    for width, count, ratio, k, stride in ((32, 1, 4, 7, 4), (64, 2, 2, 3, 2)):
        side //= stride
        t = w.layer_norm(w.tokens(w.conv(x, ins, width, k, stride), width), width)
        n = w.layer_norm(t, width)
        context = w.layer_norm(w.tokens(w.conv(w.image(n, width, side), width, width, ratio, ratio), width), width)
        t = w.op("Add", t, w.attention(n, width, count, context))
        t = w.op("Add", t, w.linear(w.gelu(w.linear(w.layer_norm(t, width), width, 4 * width)), 4 * width, width))
        x, ins = w.image(w.layer_norm(t, width), width, side), width
        scales = w.constant(np.array([1, 1, 16 // side, 16 // side], np.float32))
        maps.append(w.op("Resize", w.conv(x, width, 32, 1), "", scales, mode="nearest"))
    return w.model(w.conv(w.relu(w.conv(w.op("Concat", *maps, axis=1), 64, 64, 1)), 64, 8, 1), 4)


def translator(seed: int) -> onnx.ModelProto:
    w = Writer((1, 24, 64), seed)
    memory = w.layer_norm(w.block("x", 64, 4), 64)
    x = w.op("Add", w.normal(1, 12, 64), w.linear(w.op("ReduceMean", "x", axes=[1], keepdims=1), 64, 64))
    x = w.op("Add", x, w.attention(w.layer_norm(x, 64), 64, 4, memory))
    x = w.op("Add", x, w.linear(w.relu(w.linear(w.layer_norm(x, 64), 64, 256)), 256, 64))
    return w.model(w.linear(w.layer_norm(x, 64), 64, 16), 3)


NETWORKS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "ViT": vit,
    "ViT + deconvolutions": vit_decoder,
    "SegFormer-like": segformer,
    "BERT": bert,
    "GPT": gpt,
    "encoder and decoder": translator,
    "U-Net with attention": unet_attention,
    "U-Net": unet,
    "autoencoder": autoencoder,
    "residual decoder": residual,
    "ResNet": resnet,
    "generator": generator,
    "vocoder": vocoder,
    "perceptron": perceptron,
}
"""Name to what writes it, of a seed."""


def samples(model: onnx.ModelProto, count: int, seed: int) -> Inputs:
    """Returns inputs: words, or values of a smooth field with noise, each sample of its own size."""
    random = np.random.default_rng(seed)
    value = model.graph.input[0].type.tensor_type
    shape = [dim.dim_value for dim in value.shape.dim]
    if value.elem_type == TensorProto.INT64:
        return [{"x": random.integers(0, 200, shape)} for _ in range(count)]
    found = []
    for _ in range(count):
        noise = random.standard_normal(shape)
        if len(shape) == 4:
            noise += np.kron(2 * random.standard_normal((*shape[:2], shape[2] // 8, shape[3] // 8)), np.ones((8, 8)))
        found.append({"x": (random.uniform(0.6, 1.4) * noise).astype(np.float32)})
    return found
