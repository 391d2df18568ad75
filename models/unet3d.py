"""A 3-D U-Net for volumes (CT, MRI) that upsamples with ConvTranspose3d and output_padding.

Two poolings, two transposed convolutions, skips by concatenation. The deeper upsampling has
padding 0 and output_padding 1 and is followed by a valid 3x3x3 convolution that brings
2 * size + 2 down to 2 * size; the other is the usual k3 s2 p1 op1.

Shapes:
    x: (batch, 1, depth, height, width), float32
    y: (batch, classes, depth, height, width), float32 logits
Valid sizes: depth, height and width are multiples of 4; batch is free.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

INPUT = "x"
OUTPUT = "y"
EXAMPLE = (1, 1, 16, 32, 32)
OTHER_SIZES = ((2, 1, 8, 16, 24), (1, 1, 4, 4, 4), (1, 1, 20, 12, 16))
DYNAMIC_AXES = {
    "x": {0: "batch", 2: "depth", 3: "height", 4: "width"},
    "y": {0: "batch", 2: "depth", 3: "height", 4: "width"},
}
TOLERANCE = 1e-5


def _conv(channels_in: int, channels_out: int) -> nn.Sequential:
    """A 3x3x3 convolution that keeps the size, followed by a ReLU."""
    return nn.Sequential(nn.Conv3d(channels_in, channels_out, 3, padding=1), nn.ReLU())


class UNet3d(nn.Module):
    """The network; `widths` are the channels of the two levels and of the bottom."""

    def __init__(self, channels: int, classes: int, widths: tuple[int, int, int]) -> None:
        super().__init__()
        w1, w2, w3 = widths
        self.enc1 = _conv(channels, w1)
        self.enc2 = _conv(w1, w2)
        self.bottom = _conv(w2, w3)
        self.pool = nn.MaxPool3d(2)
        self.up2 = nn.ConvTranspose3d(w3, w2, 3, stride=2, padding=0, output_padding=1)
        self.trim2 = nn.Conv3d(w2, w2, 3)
        self.dec2 = _conv(2 * w2, w2)
        self.up1 = nn.ConvTranspose3d(w2, w1, 3, stride=2, padding=1, output_padding=1)
        self.dec1 = _conv(2 * w1, w1)
        self.head = nn.Conv3d(w1, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, D, H, W) -> (N, classes, D, H, W)."""
        skip1 = self.enc1(x)
        skip2 = self.enc2(self.pool(skip1))
        y = self.bottom(self.pool(skip2))
        y = self.dec2(torch.cat([self.trim2(self.up2(y)), skip2], dim=1))
        y = self.dec1(torch.cat([self.up1(y), skip1], dim=1))
        return self.head(y)


def build(
    channels: int = 1,
    classes: int = 2,
    widths: tuple[int, int, int] = (8, 16, 32),
    seed: int = 0,
) -> nn.Module:
    """Makes the network with random weights, in eval mode.

    Args:
        channels: Channels of the input.
        classes: Channels of the output.
        widths: Channels of the two levels, from the top, and of the bottom.
        seed: Seed of the weights.
    """
    torch.manual_seed(seed)
    model = UNet3d(channels, classes, widths)
    for weight in model.parameters():
        if weight.dim() > 1:  # by default the deepest level would hardly show in the output
            nn.init.kaiming_uniform_(weight, nonlinearity="relu")
    return model.eval()
