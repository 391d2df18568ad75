"""A 1-D vocoder generator (HiFi-GAN-like): mel spectrogram frames to an audio waveform.

Each stage enlarges time by a stride u with ConvTranspose1d of kernel 2u, then adds up residual
blocks of several kernel sizes. An odd u needs output_padding 1 to make exactly u times the length:
padding is ceil(u / 2) and output_padding is u mod 2. The strides 5, 4 and 3 make a hop of 60.

Shapes:
    mel: (batch, 80, frames), float32
    audio: (batch, 1, frames * hop), float32 in -1 to 1
Valid sizes: every number of frames from 1; batch is free.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

INPUT = "mel"
OUTPUT = "audio"
EXAMPLE = (1, 80, 40)
OTHER_SIZES = ((2, 80, 25), (1, 80, 1), (3, 80, 64))
DYNAMIC_AXES = {"mel": {0: "batch", 2: "frames"}, "audio": {0: "batch", 2: "samples"}}
TOLERANCE = 1e-5
_SLOPE = 0.1


class ResidualBlock(nn.Module):
    """Two convolutions over time, the first dilated, with the input added; size unchanged."""

    def __init__(self, width: int, kernel: int, dilation: int) -> None:
        super().__init__()
        padding = dilation * (kernel // 2)
        self.conv1 = nn.Conv1d(width, width, kernel, padding=padding, dilation=dilation)
        self.conv2 = nn.Conv1d(width, width, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, width, T) -> (N, width, T)."""
        y = self.conv1(nn.functional.leaky_relu(x, _SLOPE))
        return x + self.conv2(nn.functional.leaky_relu(y, _SLOPE))


class Stage(nn.Module):
    """Enlarges time by `stride` and halves the channels, then averages two residual blocks."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(
            width,
            width // 2,
            2 * stride,
            stride=stride,
            padding=(stride + 1) // 2,
            output_padding=stride % 2,
        )
        self.short = ResidualBlock(width // 2, kernel=3, dilation=3)
        self.long = ResidualBlock(width // 2, kernel=7, dilation=1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, width, T) -> (N, width / 2, stride * T)."""
        y = self.up(nn.functional.leaky_relu(x, _SLOPE))
        return (self.short(y) + self.long(y)) / 2


class Vocoder(nn.Module):
    """The generator; one stage for each of `strides`, each with half the channels before it."""

    def __init__(self, mels: int, width: int, strides: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Conv1d(mels, width, 7, padding=3)
        self.stages = nn.Sequential(*(Stage(width >> i, u) for i, u in enumerate(strides)))
        self.head = nn.Conv1d(width >> len(strides), 1, 7, padding=3)

    def forward(self, mel: Tensor) -> Tensor:
        """(N, mels, T) -> (N, 1, hop * T)."""
        y = nn.functional.leaky_relu(self.stages(self.stem(mel)), _SLOPE)
        return torch.tanh(self.head(y))


def build(
    mels: int = 80,
    width: int = 64,
    strides: tuple[int, ...] = (5, 4, 3),
    seed: int = 0,
) -> nn.Module:
    """Makes the generator with random weights, in eval mode.

    Args:
        mels: Mel bands of the input.
        width: Channels before the first stage, divisible by 2 ** len(strides).
        strides: How much each stage enlarges time; their product is the hop.
        seed: Seed of the weights.
    """
    torch.manual_seed(seed)
    return Vocoder(mels, width, strides).eval()
