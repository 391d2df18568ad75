"""Ways of writing modules that are met in public packages; each was once refused, narrowed or written wrong."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CachedAnchors(nn.Module):
    """Detectors: anchors made from the sizes, kept on the module, filled from a tensor of strides."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)
        self.stride = torch.tensor([2.0])
        self.shape: torch.Size | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if self.shape != x.shape:
            h, w = y.shape[2:]
            self.anchors = torch.arange(end=h * w, dtype=y.dtype, device=y.device)
            self.strides = y.new_full((h * w, 1), self.stride[0], dtype=y.dtype)
            self.shape = x.shape
        return y.flatten(2) + self.anchors * self.strides[:, 0]


class PadToMultiple(nn.Module):
    """Restoration networks: padded to a multiple of 8, cropped at the end. Takes every size."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 8, 8), nn.ConvTranspose2d(8, 3, 8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[-2:]
        padded = F.pad(x, (0, (8 - w % 8) % 8, 0, (8 - h % 8) % 8), mode="reflect")
        return self.up(self.down(padded))[..., :h, :w]


class PooledToPart(nn.Module):
    """Attention over a part of the size: what exporters write of adaptive pooling is right where the part divides."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[-2:]
        return x * F.interpolate(self.conv(F.adaptive_max_pool2d(x, (h // 4, w // 4))), size=(h, w), mode="nearest")


class Pyramid(nn.Module):
    """Adaptive pooling to fixed numbers of windows, and along one axis: what is pooled together follows the size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)
        self.last = nn.Linear(4 * 49 + 4 * 9, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y = y * torch.sigmoid(F.adaptive_avg_pool2d(y, (None, 1))) * torch.sigmoid(F.adaptive_avg_pool2d(y, (1, None)))
        pooled = [F.adaptive_avg_pool2d(y, 7), F.adaptive_max_pool2d(y, 3)]
        return self.last(torch.cat([each.flatten(1) for each in pooled], 1))


class SpecialSize(nn.Module):
    """Does something else at a single size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) * (3 if x.shape[-1] == 77 else 1)


class KeywordOnly(nn.Module):
    """A second input that is taken by keyword alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor, *, mask: Tensor) -> dict[str, Tensor]:
        return {"y": self.conv(x) * mask}


class Written(nn.Module):
    """Counts its runs in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.runs.add_(1)
        return self.conv(x)


class HookedLater(nn.Module):
    """Transformers: hooks are installed at the first run, and keep what layers make; forward needs all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.hooked = nn.Conv2d(3, 3, 3, padding=1), False
        self.made: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if not self.hooked:
            self.conv.register_forward_hook(lambda *call: self.made.append(call[-1]))
            self.hooked = True
        self.made.clear()
        self.conv(x)
        (only,) = self.made
        return x + only


class TwoScales(nn.Module):
    """Two inputs, of which one has half of the other's size, rounded up."""

    def __init__(self) -> None:
        super().__init__()
        self.high, self.low = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor, low: Tensor) -> Tensor:
        return self.high(x) + self.low(low)


class Counting(nn.Module):
    """Writes into its buffers, one in place and one anew."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("runs", torch.zeros(()))
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        self.runs += 1
        self.mean = self.mean * 0.5 + y.mean()
        return y * self.runs + self.mean


class Noisy(nn.Module):
    """Adds noise in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y + 0.5 * torch.randn_like(y)


class PartlyScripted(nn.Module):
    """A part of it is TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.part = torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
        self.last = nn.ConvTranspose2d(4, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.part(x))


class Permute(nn.Module):
    """A permutation that is made by tensors: no value of an input is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        perm = torch.cat((torch.tensor([1, 0]), torch.arange(2, x.ndim)))
        return self.up(x.permute(*perm).contiguous().permute(*perm))


class Crop(nn.Module):
    """Sizes that go through small tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.up = nn.Conv2d(3, 4, 4, 2, 1), nn.ConvTranspose2d(4, 3, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(self.a(x))
        crop = torch.tensor(x.shape[2:]) - torch.tensor(y.shape[2:])
        half = crop // 2
        return y + F.pad(x, (-torch.stack((half, crop - half)).t().flatten()).tolist())


class Buffer(nn.Module):
    """Pads by the value of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 4, 2, 1)
        self.register_buffer("border", torch.tensor(2))

    def forward(self, x: Tensor) -> Tensor:
        pad = self.get_buffer("border")
        if x.shape[-1] <= pad:
            x = F.pad(x, (0, int(pad) - x.shape[-1] + 1))
        return self.up(F.pad(x, (int(pad),) * 4, mode="reflect"))


class QuantizedBranch(nn.Module):
    """Branches on values, in a module that the tracing exporter gets first."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127))
        if y.abs().max() > 3.0:
            y = y / y.abs().max()
        return y


class Round(torch.autograd.Function):
    """Says which ONNX node it is."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def symbolic(g, x):
        return g.op("Round", x)


class SymbolicBranch(nn.Module):
    """The same beside such a function."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(Round.apply(x))
        if x.max() > 20.0:
            y = y / x.max()
        return y


class OddSizes(nn.Module):
    """A quantised U-Net that pads odd sizes: the tracing exporter keeps one way or the other."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.out = nn.Conv2d(3, 8, 3, 1, 1), nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(11, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.fake_quantize_per_tensor_affine(F.max_pool2d(self.down(x), 2), 0.05, 0, -128, 127)
        y = self.up(y)
        if y.shape[-1] != x.shape[-1]:
            y = F.pad(y, (0, 1, 0, 0), "replicate")
        if y.shape[-2] != x.shape[-2]:
            y = F.pad(y, (0, 0, 0, 1), "replicate")
        return self.out(torch.cat([x, y], 1))


class TrainedMask(nn.Module):
    """Windowed attention: a mask kept for the trained size 32x32, made anew for others. Takes every size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 3, 3, padding=1)
        self.register_buffer("mask", self.calculate(32, 32))

    def calculate(self, h: int, w: int) -> Tensor:
        rows = torch.arange(h).view(-1, 1) // 8
        return (rows + torch.arange(w) // 8).float()

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[2:]
        pad_h, pad_w = (8 - h % 8) % 8, (8 - w % 8) % 8
        if pad_h or pad_w:
            x = F.pad(x, (0, pad_w, 0, pad_h), "reflect")
        y = self.first(x)
        size = (x.shape[2], x.shape[3])
        y = y * (self.get_buffer("mask") if size == (32, 32) else self.calculate(*size))
        b, c, hh, ww = y.shape
        y = y.view(b, c, hh // 8, 8, ww // 8, 8)
        y = y.mean((3, 5), keepdim=True) + y
        return self.last(y.view(b, c, hh, ww))[:, :, :h, :w]


class TrainedPositions(nn.Module):
    """A vision transformer: positions for 4x4 patches, resized for others."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.up = nn.Conv2d(3, 8, 8, 8), nn.ConvTranspose2d(8, 3, 8, 8)
        self.position = nn.Parameter(torch.randn(1, 16, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.embed(x)
        b, c, h, w = y.shape
        position: Tensor = self.position
        if h * w != 16 or h != w:
            grid = position.reshape(1, 4, 4, c).permute(0, 3, 1, 2)
            position = F.interpolate(grid, size=(h, w), mode="bilinear").permute(0, 2, 3, 1).reshape(1, -1, c)
        y = y.flatten(2).transpose(1, 2) + position
        return self.up(y.transpose(1, 2).reshape(b, c, h, w))


class LargeOnly(nn.Module):
    """A threshold on a size, in a module that is traced: nothing but the size itself parts the ways."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)
        return y * (2 if x.shape[2] > 100 else 1)


class CausalEncoder(nn.Module):
    """nn.TransformerEncoder with a mask, of which it asks by its values whether it is causal."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x, mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]))


class ProjectedLstm(nn.Module):
    """What torch.export fixes to one length, without a line of ours, and the tracing exporter does not write."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, proj_size=4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]
