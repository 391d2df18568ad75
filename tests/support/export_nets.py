"""Small modules, each with one property that an export must see. Tests import it; so does `trtconv export`."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Skip(nn.Module):
    """A U-Net of one level: sizes are multiples of 2."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 2, stride=2)
        self.up = nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.up(self.down(x)), x], dim=1)


class Padded(nn.Module):
    """A U-Net that takes 63 too, and returns 64 for it."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(1, 2, 3, stride=2, padding=1)
        self.two = nn.Conv2d(2, 2, 3, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1, output_padding=1)
        self.up1 = nn.ConvTranspose2d(4, 1, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.one(x)
        return self.up1(torch.cat([self.up2(self.two(a)), a], dim=1))


class Odd(nn.Module):
    """Takes odd sizes only."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 3, 3, stride=2)
        self.up = nn.ConvTranspose2d(3, 3, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(self.down(x))


class AnySize(nn.Module):
    """A U-Net of three levels for every size: each deconvolution is told the size of its skip.

    Args:
        pooled: Halve by MaxPool, which rounds down, and double with kernel 2, whose output padding nothing crops.
    """

    def __init__(self, pooled: bool = False) -> None:
        super().__init__()
        self.halves = nn.ModuleList(
            nn.Sequential(nn.Conv2d(3 if n == 0 else 4, 4, 1), nn.MaxPool2d(2))
            if pooled
            else nn.Conv2d(3 if n == 0 else 4, 4, 3, stride=2, padding=1)
            for n in range(3)
        )
        kernel, padding = (2, 0) if pooled else (3, 1)
        self.doubles = nn.ModuleList(
            nn.ConvTranspose2d(4 if n == 0 else 8, 4, kernel, stride=2, padding=padding) for n in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for halve in self.halves:
            skips.append(x)
            x = halve(x).relu()
        for double in self.doubles:
            skip = skips.pop()
            x = torch.cat([double(x, output_size=skip.shape[-2:]), skip], dim=1)
        return x


class SizedLayer(nn.Module):
    """Halves or thirds, and comes back to the size that there was; 1-D, 2-D or 3-D, with or without a batch.

    Args:
        rank: Spatial dimensions.
        layer: Arguments of the deconvolution.
    """

    def __init__(self, rank: int, **layer: int) -> None:
        super().__init__()
        self.rank = rank
        down = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
        up = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
        self.down = down(2, 4, 3, stride=layer["stride"], padding=1)
        self.up = up(4, 2, **layer)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(self.down(x), output_size=x.shape[-self.rank :])


class ComputedPadding(nn.Module):
    """The same with the functional interface: an output_padding that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.weight = nn.Parameter(torch.randn(4, 2, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(x)
        extra = [x.shape[axis] - (2 * y.shape[axis] - 1) for axis in (2, 3)]
        return nn.functional.conv_transpose2d(y, self.weight, None, 2, 1, output_padding=extra)


class Square(nn.Module):
    """Height and width must be equal."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x.transpose(2, 3)


class Limited(nn.Module):
    """Takes sizes up to 48."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(1, 3, 48, 48))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.get_buffer("table")[:, :, : x.shape[2], : x.shape[3]]


class Baked(nn.Module):
    """Runs at every height in PyTorch, and makes a constant of it when it is traced."""

    def forward(self, x: Tensor) -> Tensor:
        height = int(x.shape[2])
        return x + torch.zeros(1, 1, height, x.shape[3])


class Fixed(nn.Module):
    """Runs at one size only."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], 3, 32 * 32)


class Values(nn.Module):
    """Branches on the values of a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x


class Branch(nn.Module):
    """Runs other code for large sizes."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] > 40:
            return x * 2
        return x


class Named(nn.Module):
    """Keyword inputs, a dict with a gap, and an output that is no tensor."""

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: Tensor | None = None) -> dict[str, object]:
        y = x * scale
        return {"picture": y, "extra": (y.sum(1), None), "count": 3}


class Dropped(nn.Module):
    """Computes something else in train mode."""

    def __init__(self, width: int = 3, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, width, 1)
        self.drop = nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.conv(x))


class FakeQuantized(nn.Module):
    """A deconvolution with weights fake-quantised along their output channels, axis 1."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1)
        self.register_buffer("scale", self.up.weight.detach().abs().amax((0, 2, 3)) / 127)
        self.register_buffer("zero", torch.zeros(4, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, 0.03125, 0, -128, 127)
        weight = torch.fake_quantize_per_channel_affine(
            self.up.weight, self.get_buffer("scale"), self.get_buffer("zero"), 1, -128, 127
        )
        return nn.functional.conv_transpose2d(x, weight, self.up.bias, 2, 1, 1)


class TensorQuantizer(torch.autograd.Function):
    """Quantisation as NVIDIA's toolkits write it: arithmetic in PyTorch, Q/DQ nodes in ONNX."""

    @staticmethod
    def forward(ctx: object, x: Tensor, scale: Tensor, axis: int) -> Tensor:
        shape = [1] * x.dim()
        shape[axis] = -1
        steps = scale.view(shape)
        return torch.clamp(torch.round(x / steps), -128, 127) * steps

    @staticmethod
    def symbolic(g, x, scale, axis):
        zero = g.op("Constant", value_t=torch.zeros(4, dtype=torch.int8))
        quantized = g.op("QuantizeLinear", x, scale, zero, axis_i=axis)
        return g.op("DequantizeLinear", quantized, scale, zero, axis_i=axis)


class Symbolic(nn.Module):
    """A deconvolution whose weight goes through a TensorQuantizer."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.register_buffer("scale", torch.linspace(0.001, 0.002, 4))

    def forward(self, x: Tensor) -> Tensor:
        weight = TensorQuantizer.apply(self.up.weight, self.get_buffer("scale"), 1)
        return nn.functional.conv_transpose2d(x, weight, self.up.bias, 2)


def broken() -> nn.Module:
    raise KeyError("no such weight")


def number() -> int:
    return 3
