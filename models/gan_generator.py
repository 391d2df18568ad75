"""A DCGAN-like generator: a latent vector to a 64 x 64 picture.

One ConvTranspose2d k4 s1 p0 makes 4x4 of the 1x1 input, four k4 s2 p1 double it up to 64x64. All
but the last are followed by batch normalisation, whose statistics are random (not 0 and 1), and a
ReLU.

Shapes:
    z: (batch, 100, 1, 1), float32
    image: (batch, 3, 64, 64), float32 in -1 to 1
Valid sizes: batch is free, nothing else is dynamic.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

INPUT = "z"
OUTPUT = "image"
EXAMPLE = (1, 100, 1, 1)
OTHER_SIZES = ((2, 100, 1, 1), (3, 100, 1, 1), (8, 100, 1, 1))
DYNAMIC_AXES = {"z": {0: "batch"}, "image": {0: "batch"}}
TOLERANCE = 1e-5


def _block(channels_in: int, channels_out: int, stride: int, padding: int) -> nn.Sequential:
    """Transposed convolution k4, batch normalisation, ReLU."""
    return nn.Sequential(
        nn.ConvTranspose2d(channels_in, channels_out, 4, stride, padding, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    )


class Generator(nn.Module):
    """The generator; `widths` are the channels at 4x4, 8x8, 16x16 and 32x32."""

    def __init__(self, latent: int, channels: int, widths: tuple[int, int, int, int]) -> None:
        super().__init__()
        w4, w8, w16, w32 = widths
        self.up4 = _block(latent, w4, stride=1, padding=0)
        self.up8 = _block(w4, w8, stride=2, padding=1)
        self.up16 = _block(w8, w16, stride=2, padding=1)
        self.up32 = _block(w16, w32, stride=2, padding=1)
        self.up64 = nn.ConvTranspose2d(w32, channels, 4, stride=2, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        """(N, latent, 1, 1) -> (N, channels, 64, 64)."""
        y = self.up32(self.up16(self.up8(self.up4(z))))
        return torch.tanh(self.up64(y))


def build(
    latent: int = 100,
    channels: int = 3,
    widths: tuple[int, int, int, int] = (48, 32, 16, 8),
    seed: int = 0,
) -> nn.Module:
    """Makes the generator with random weights, in eval mode.

    Args:
        latent: Length of the latent vector.
        channels: Channels of the picture.
        widths: Channels at 4x4, 8x8, 16x16 and 32x32.
        seed: Seed of the weights and of the statistics of batch normalisation.
    """
    torch.manual_seed(seed)
    model = Generator(latent, channels, widths)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.get_buffer("running_mean").uniform_(-0.1, 0.1)
            layer.get_buffer("running_var").uniform_(0.05, 0.2)
    return model.eval()
