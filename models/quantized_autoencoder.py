"""An INT8 encoder-decoder whose output layer is ConvTranspose2d(64, 10, 1).

The case of pytorch/TensorRT issue 2723, "expected 64 output channels, got 10". Every convolution
is fake-quantised: its input per tensor, its weight per output channel, int8 with zero point 0. The
output channels of a Conv2d weight are axis 0, those of a ConvTranspose2d weight, laid out
(C_in, C_out, kh, kw), are axis 1. In the ONNX file each weight is a float32 initializer followed by
QuantizeLinear and DequantizeLinear. The output channels of the last layer differ up to tenfold in
magnitude, so scales taken along the wrong axis show.

Shapes:
    x: (batch, 3, height, width), float32
    y: (batch, classes, height, width), float32 logits
Valid sizes: height and width are multiples of 2; batch is free.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

INPUT = "x"
OUTPUT = "y"
EXAMPLE = (1, 3, 32, 32)
OTHER_SIZES = ((2, 3, 16, 24), (1, 3, 2, 2), (3, 3, 30, 18))
DYNAMIC_AXES = {
    "x": {0: "batch", 2: "height", 3: "width"},
    "y": {0: "batch", 2: "height", 3: "width"},
}
TOLERANCE = 2e-2  # a value on the border between two int8 steps may fall to either side


class QuantConv2d(nn.Conv2d):
    """Conv2d with input and weight rounded to int8; `_calibrate` sets the scales."""

    weight_axis = 0
    weight_scale: Tensor
    input_scale: float

    def forward(self, x: Tensor) -> Tensor:
        """(N, C_in, H, W) -> (N, C_out, H, W)."""
        return self._conv_forward(*_fake_quantize(self, x), self.bias)


class QuantConvTranspose2d(nn.ConvTranspose2d):
    """ConvTranspose2d with input and weight rounded to int8; `_calibrate` sets the scales."""

    weight_axis = 1
    weight_scale: Tensor
    input_scale: float

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """(N, C_in, H, W) -> (N, C_out, H_out, W_out)."""
        x, weight = _fake_quantize(self, x)
        sizes = (self.stride, self.padding, self.output_padding)
        return nn.functional.conv_transpose2d(x, weight, self.bias, *sizes)  # type: ignore[arg-type]


def _fake_quantize(layer: QuantConv2d | QuantConvTranspose2d, x: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds the input `x` and the weight of `layer` to int8 steps."""
    scale, axis = layer.weight_scale, layer.weight_axis
    zero = torch.zeros_like(scale, dtype=torch.int32)
    return (
        torch.fake_quantize_per_tensor_affine(x, layer.input_scale, 0, -128, 127),
        torch.fake_quantize_per_channel_affine(layer.weight, scale, zero, axis, -128, 127),
    )


def _calibrate(layer: QuantConv2d | QuantConvTranspose2d, inputs: tuple[Tensor]) -> None:
    """Sets the scales of `layer`, so that its weight and `inputs` just fit into int8.

    The input scale is rounded up to a power of two. The weight scales are a buffer: computed while
    the network runs, they would be in the ONNX file too, and TensorRT takes only constants.
    """
    steps = float(inputs[0].abs().max()) / 127
    layer.input_scale = 2.0 ** math.ceil(math.log2(steps))
    others = [i for i in range(layer.weight.dim()) if i != layer.weight_axis]
    layer.register_buffer("weight_scale", layer.weight.detach().abs().amax(others) / 127)


class QuantizedAutoencoder(nn.Module):
    """The network; `width` are the channels of the encoder, `features` those of the decoder."""

    def __init__(self, channels: int, classes: int, width: int, features: int) -> None:
        super().__init__()
        self.enc1 = QuantConv2d(channels, width, 3, padding=1)
        self.enc2 = QuantConv2d(width, width, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.up = QuantConvTranspose2d(width, width, 3, stride=2, padding=1, output_padding=1)
        self.dec1 = QuantConv2d(2 * width, features, 3, padding=1)
        self.dec2 = QuantConv2d(features, features, 3, padding=1)
        self.out = QuantConvTranspose2d(features, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) -> (N, classes, H, W)."""
        skip = nn.functional.relu(self.enc2(nn.functional.relu(self.enc1(x))))
        y = torch.cat([self.up(self.pool(skip)), skip], dim=1)
        y = nn.functional.relu(self.dec2(nn.functional.relu(self.dec1(y))))
        return self.out(y)


def build(
    channels: int = 3,
    classes: int = 10,
    width: int = 32,
    features: int = 64,
    seed: int = 0,
) -> nn.Module:
    """Makes the network with random weights, calibrated on one random batch, in eval mode.

    Args:
        channels: Channels of the input.
        classes: Channels of the output.
        width: Channels of the encoder.
        features: Channels of the decoder, the input of the output layer.
        seed: Seed of the weights and of the calibration batch.
    """
    torch.manual_seed(seed)
    model = QuantizedAutoencoder(channels, classes, width, features).eval()
    with torch.no_grad():
        model.out.weight.mul_(torch.logspace(-1, 0, classes).view(1, classes, 1, 1))
        kinds = (QuantConv2d, QuantConvTranspose2d)
        layers = [layer for layer in model.modules() if isinstance(layer, kinds)]
        hooks = [layer.register_forward_pre_hook(_calibrate) for layer in layers]
        model(torch.randn(4, channels, 32, 32))
    for hook in hooks:
        hook.remove()
    return model
