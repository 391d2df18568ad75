"""A super-resolution network (x2): a U-Net with pixel shuffle, and interpolate for the residual.

In the spirit of the network of pytorch/TensorRT issue 2617: three strided convolutions down,
three 1x1 convolutions with a pixel shuffle up, skips by addition, and one pixel shuffle more for
the doubled size. The bilinearly interpolated input is added at the end.

Shapes:
    x: (batch, 3, height, width), float32
    y: (batch, 3, 2 * height, 2 * width), float32
Valid sizes: height and width are multiples of 8 (200 is one, 300 is none); batch is free.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

INPUT = "x"
OUTPUT = "y"
EXAMPLE = (1, 3, 64, 64)
OTHER_SIZES = ((2, 3, 32, 48), (1, 3, 8, 8), (3, 3, 72, 40))
DYNAMIC_AXES = {
    "x": {0: "batch", 2: "height", 3: "width"},
    "y": {0: "batch", 2: "out_height", 3: "out_width"},
}
TOLERANCE = 1e-5


def _conv(width: int) -> nn.Sequential:
    """A 3x3 convolution that keeps size and channels, followed by a ReLU."""
    return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())


def _up(channels_in: int, channels_out: int) -> nn.Sequential:
    """Doubles the size: a 1x1 convolution to four times the channels, then a pixel shuffle."""
    return nn.Sequential(nn.Conv2d(channels_in, 4 * channels_out, 1), nn.PixelShuffle(2))


class SuperResolution(nn.Module):
    """The network; `widths` are the channels of the three levels and of the bottom."""

    def __init__(self, channels: int, widths: tuple[int, int, int, int]) -> None:
        super().__init__()
        w1, w2, w3, w4 = widths
        self.stem = nn.Conv2d(channels, w1, 3, padding=1)
        self.enc1 = _conv(w1)
        self.down1 = nn.Conv2d(w1, w2, 2, stride=2)
        self.enc2 = _conv(w2)
        self.down2 = nn.Conv2d(w2, w3, 2, stride=2)
        self.enc3 = _conv(w3)
        self.down3 = nn.Conv2d(w3, w4, 2, stride=2)
        self.bottom = _conv(w4)
        self.up3 = _up(w4, w3)
        self.dec3 = _conv(w3)
        self.up2 = _up(w3, w2)
        self.dec2 = _conv(w2)
        self.up1 = _up(w2, w1)
        self.dec1 = _conv(w1)
        self.head = nn.Conv2d(w1, 4 * channels, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) -> (N, channels, 2H, 2W)."""
        skip1 = self.enc1(self.stem(x))
        skip2 = self.enc2(self.down1(skip1))
        skip3 = self.enc3(self.down2(skip2))
        y = self.bottom(self.down3(skip3))
        y = self.dec3(self.up3(y) + skip3)
        y = self.dec2(self.up2(y) + skip2)
        y = self.dec1(self.up1(y) + skip1)
        enlarged = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.shuffle(self.head(y)) + enlarged


def build(
    channels: int = 3,
    widths: tuple[int, int, int, int] = (16, 24, 32, 48),
    seed: int = 0,
) -> nn.Module:
    """Makes the network with random weights, in eval mode.

    Args:
        channels: Channels of input and output.
        widths: Channels of the three levels, from the top, and of the bottom.
        seed: Seed of the weights.
    """
    torch.manual_seed(seed)
    model = SuperResolution(channels, widths)
    for weight in model.parameters():
        if weight.dim() > 1:  # by default the deepest level would hardly show in the output
            nn.init.kaiming_uniform_(weight, nonlinearity="relu")
    return model.eval()
