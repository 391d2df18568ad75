"""A 2-D U-Net for segmentation whose decoder upsamples with ConvTranspose2d and output_padding.

Three 2x2 poolings and three transposed convolutions; each decoder level is concatenated with the
encoder level of its size. The deepest upsampling has padding 0 and output_padding 1 (one row and
column more than its padding hides), which makes 2 * size + 2; the valid 3x3 convolution after it
brings that down to 2 * size. The two others are the usual k3 s2 p1 op1.

Shapes:
    x: (batch, 3, height, width), float32
    y: (batch, classes, height, width), float32 logits
Valid sizes: height and width are multiples of 8; batch is free.
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
    "y": {0: "batch", 2: "height", 3: "width"},
}
TOLERANCE = 1e-5


def _double_conv(channels_in: int, channels_out: int) -> nn.Sequential:
    """Two 3x3 convolutions that keep the size, each followed by a ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels_out, channels_out, 3, padding=1),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """The network; `widths` are the channels of the three levels and of the bottom."""

    def __init__(self, channels: int, classes: int, widths: tuple[int, int, int, int]) -> None:
        super().__init__()
        w1, w2, w3, w4 = widths
        self.enc1 = _double_conv(channels, w1)
        self.enc2 = _double_conv(w1, w2)
        self.enc3 = _double_conv(w2, w3)
        self.bottom = _double_conv(w3, w4)
        self.pool = nn.MaxPool2d(2)
        self.up3 = nn.ConvTranspose2d(w4, w3, 3, stride=2, padding=0, output_padding=1)
        self.trim3 = nn.Conv2d(w3, w3, 3)
        self.dec3 = _double_conv(2 * w3, w3)
        self.up2 = nn.ConvTranspose2d(w3, w2, 3, stride=2, padding=1, output_padding=1)
        self.dec2 = _double_conv(2 * w2, w2)
        self.up1 = nn.ConvTranspose2d(w2, w1, 3, stride=2, padding=1, output_padding=1)
        self.dec1 = _double_conv(2 * w1, w1)
        self.head = nn.Conv2d(w1, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) -> (N, classes, H, W)."""
        skip1 = self.enc1(x)
        skip2 = self.enc2(self.pool(skip1))
        skip3 = self.enc3(self.pool(skip2))
        y = self.bottom(self.pool(skip3))
        y = self.dec3(torch.cat([self.trim3(self.up3(y)), skip3], dim=1))
        y = self.dec2(torch.cat([self.up2(y), skip2], dim=1))
        y = self.dec1(torch.cat([self.up1(y), skip1], dim=1))
        return self.head(y)


def build(
    channels: int = 3,
    classes: int = 4,
    widths: tuple[int, int, int, int] = (8, 16, 32, 48),
    seed: int = 0,
) -> nn.Module:
    """Makes the network with random weights, in eval mode.

    Args:
        channels: Channels of the input.
        classes: Channels of the output.
        widths: Channels of the three levels, from the top, and of the bottom.
        seed: Seed of the weights.
    """
    torch.manual_seed(seed)
    model = UNet(channels, classes, widths)
    for weight in model.parameters():
        if weight.dim() > 1:  # by default the deepest level would hardly show in the output
            nn.init.kaiming_uniform_(weight, nonlinearity="relu")
    return model.eval()
