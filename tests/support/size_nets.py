"""Small networks of the kinds that people deploy, for comparing their size lattices with ONNX Runtime."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class NestedUnet(nn.Module):
    """U-Net++ with odd pooling windows, one of them rounding up."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(3, 2, 1)
        self.stem, self.body = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.up, self.join = nn.ConvTranspose2d(4, 4, 2, stride=2), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        top = self.stem(x)
        middle = self.body(self.first(top))
        bottom = self.second(middle)
        upper = self.join(torch.cat([top, self.up(middle)], 1))
        lower = self.join(torch.cat([middle, self.up(bottom)], 1))
        return self.join(torch.cat([upper, self.up(lower)], 1))


class Pyramid(nn.Module):
    """FPN that resizes to the size of the finer level."""

    def __init__(self) -> None:
        super().__init__()
        self.downs = nn.ModuleList(nn.Conv2d(3 if n == 0 else 4, 4, 3, stride=2, padding=1) for n in range(4))

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for down in self.downs:
            x = down(x)
            levels.append(x)
        for level in reversed(levels[:-1]):
            x = F.interpolate(x, size=level.shape[-2:], mode="nearest") + level
        return x


class Vit(nn.Module):
    """Patches, positions interpolated to the grid, self-attention, and back to an image."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.qkv = nn.Conv2d(3, 8, 8, stride=8), nn.Linear(8, 24)
        self.positions = nn.Parameter(torch.zeros(1, 8, 7, 7))

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x)
        y = y + F.interpolate(self.positions, size=y.shape[-2:], mode="bilinear")
        b, c, h, w = y.shape
        tokens = y.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).reshape(b, h * w, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).reshape(b, h * w, c)
        return mixed.transpose(1, 2).reshape(b, c, h, w)


class Windows(nn.Module):
    """Swin's windows: rolled, partitioned, merged; padded to whole windows or not."""

    def __init__(self, padded: bool) -> None:
        super().__init__()
        self.padded = padded
        self.patch, self.mix = nn.Conv2d(3, 8, 2, stride=2), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        if self.padded:
            x = F.pad(x, (0, 0, 0, (4 - w % 4) % 4, 0, (4 - h % 4) % 4))
        high, wide = x.shape[1], x.shape[2]
        x = torch.roll(x, (-2, -2), (1, 2))
        y = x.view(b, high // 4, 4, wide // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        y = self.mix(y).view(b, high // 4, wide // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5)
        return y.reshape(b, high, wide, c)[:, :h, :w]


class PatchMerging(nn.Module):
    """Swin's merging of 2x2 patches by strided slices, without padding."""

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, :, 0::2, 0::2], x[:, :, 1::2, 0::2], x[:, :, 0::2, 1::2], x[:, :, 1::2, 1::2]]
        return torch.cat(parts, 1)


class Yolo(nn.Module):
    """A detector: two merged levels, grids added, boxes of all levels joined."""

    def __init__(self) -> None:
        super().__init__()
        self.downs = nn.ModuleList(nn.Conv2d(3 if n == 0 else 6, 6, 3, stride=2, padding=1) for n in range(4))
        self.fuse, self.head = nn.Conv2d(12, 6, 1), nn.Conv2d(6, 14, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for down in self.downs:
            x = down(x).relu()
            levels.append(x)
        fused = self.fuse(torch.cat([F.interpolate(levels[3], scale_factor=2.0), levels[2]], 1))
        boxes = []
        for level in (fused, levels[3]):
            b, _, h, w = level.shape
            z = self.head(level).view(b, 2, 7, h, w).permute(0, 1, 3, 4, 2)
            rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            grid = torch.stack([columns, rows], -1).view(1, 1, h, w, 2).float()
            boxes.append(torch.cat([z[..., :2].sigmoid() + grid, z[..., 2:]], -1).reshape(b, -1, 7))
        return torch.cat(boxes, 1)


class Normalised(nn.Module):
    """Thirds and back, with group and instance normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 5, stride=3, padding=1), nn.ConvTranspose2d(8, 3, 5, stride=3, padding=1)
        self.groups, self.instances = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.instances(self.groups(self.down(x)))) + x


class PaddedToEight(nn.Module):
    """Pads to multiples of 8, and crops at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.lower = nn.Conv2d(3, 4, 4, stride=4), nn.Conv2d(4, 4, 2, stride=2)
        self.raise_, self.up = nn.ConvTranspose2d(4, 4, 2, stride=2), nn.ConvTranspose2d(4, 3, 4, stride=4)

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[-2:]
        middle = self.down(F.pad(x, (0, (-w) % 8, 0, (-h) % 8), mode="replicate"))
        return self.up(self.raise_(self.lower(middle)) + middle)[:, :, :h, :w]


class PaddedToSkip(nn.Module):
    """A U-Net of any size: what comes back is padded to the size of the skip."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.up = nn.MaxPool2d(2), nn.ConvTranspose2d(3, 3, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(self.pool(x))
        high, wide = x.shape[2] - y.shape[2], x.shape[3] - y.shape[3]
        return torch.cat([F.pad(y, (wide // 2, wide - wide // 2, high // 2, high - high // 2)), x], 1)


class CroppedSkip(nn.Module):
    """The first U-Net: no padding, and the skip is cropped to the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.pool, self.up = nn.MaxPool2d(2), nn.ConvTranspose2d(4, 4, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.stem(x)
        y = self.up(self.body(self.pool(skip)))
        top, left = (skip.shape[2] - y.shape[2]) // 2, (skip.shape[3] - y.shape[3]) // 2
        return torch.cat([skip[:, :, top : top + y.shape[2], left : left + y.shape[3]], y], 1)


class Text(nn.Module):
    """An encoder with a mask and a table of 64 positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.qkv = nn.Embedding(50, 8), nn.Linear(8, 24)
        self.positions = nn.Parameter(torch.zeros(64, 8))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        b, length = ids.shape
        x = self.words(ids) + self.positions[:length]
        q, k, v = self.qkv(x).view(b, length, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) + (1 - mask[:, None, None, :].float()) * -1e4
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, length, 8)


class Vocoder(nn.Module):
    """Upsampling by 5, 4, 3 and 2, with a source signal that is brought down to each rate."""

    def __init__(self) -> None:
        super().__init__()
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(4, 4, 2 * k, stride=k, padding=k // 2 + k % 2, output_padding=k % 2)
            for k in (5, 4, 3, 2)
        )
        self.sources = nn.ModuleList(
            nn.Conv1d(1, 4, 2 * k if k > 1 else 1, stride=k, padding=k // 2) for k in (24, 6, 2, 1)
        )

    def forward(self, mel: Tensor, source: Tensor) -> Tensor:
        for up, down in zip(self.ups, self.sources, strict=True):
            mel = up(F.leaky_relu(mel)) + down(source)
        return mel
