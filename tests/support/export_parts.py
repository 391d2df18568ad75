"""Pipelines of several modules, as a SPEC gives them: `export_parts.py:speech`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

import trtconv
from trtconv import ExportPart, OutputOf

SEQUENCE = ("batch", "length")


class Encoder(nn.Module):
    """Tokens to features of the same length."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table = table
        self.conv = nn.Conv1d(32, 16, 3, padding=1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.conv(self.table(ids).transpose(1, 2)) * mask[:, None]


class Decoder(nn.Module):
    """Features to frames, twice as many, beside the tokens themselves; with how loud they are."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table = table
        self.up = nn.ConvTranspose1d(16, 32, 4, stride=2, padding=1)

    def forward(self, hidden: Tensor, mask: Tensor, ids: Tensor) -> Mapping[str, Tensor]:
        mel = self.up(hidden * mask[:, None]) + self.table(ids).mean(1)[:, :, None]
        return {"mel": mel, "energy": mel.square().mean((1, 2))}


class Vocoder(nn.Module):
    """Frames to samples.

    Args:
        step: The number of frames is a multiple of it.
    """

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
        self.up = nn.ConvTranspose1d(32, 1, 8, stride=4, padding=2)

    def forward(self, mel: Tensor) -> Tensor:
        folded = mel.reshape(mel.shape[0], 32, -1, self.step)
        return self.up(folded.flatten(2)).tanh()


def speech(step: int = 1) -> list[ExportPart]:
    torch.manual_seed(3)
    table = nn.Embedding(50, 32)
    encoder, decoder, vocoder = Encoder(table).eval(), Decoder(table).eval(), Vocoder(step).eval()
    ids, mask = torch.randint(0, 50, (1, 12)), torch.ones(1, 12)
    return [
        ExportPart("encoder", encoder, {"ids": ids, "mask": mask}, {"ids": SEQUENCE, "mask": SEQUENCE}),
        ExportPart("decoder", decoder, {"hidden": OutputOf("encoder"), "mask": mask, "ids": ids}),
        ExportPart("vocoder", vocoder, {"mel": OutputOf("decoder.mel")}, {"mel": ("batch", None, "frames")}),
    ]


class Halves(nn.Module):
    """Runs other code on short inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[1] < 9 else x


def branching() -> tuple[ExportPart, ...]:
    """A second part that branches on a size which the first doubles."""
    double = trtconv.ExportPart("double", Double().eval(), {"x": torch.ones(1, 12)}, {"x": SEQUENCE})
    return double, ExportPart("halves", Halves().eval(), {"x": OutputOf("double")})


class Double(nn.Module):
    """Twice as long."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x + 1], 1)
