"""Small networks of what newer exporters write: each has a thing that older versions of TensorRT refuse or misread."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS = 8


@dataclasses.dataclass(frozen=True)
class Net:
    """A network and how it is exported.

    Args:
        make: Makes the module.
        shapes: Of its inputs; a shape of ints only, which is fed in, for each.
        names: Names of dynamic axes of the first input; None for one that is static.
        ways: Opset and exporter ("dynamo" or "legacy") of each file.
    """

    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    ways: tuple[tuple[int, str], ...]
    names: tuple[str | None, ...] = ()


class Wrapped(nn.Module):
    """A function behind a convolution or a linear layer, so that a network has weights."""

    def __init__(self, function: Callable[..., Tensor], first: nn.Module | None = None) -> None:
        super().__init__()
        self.first = first or nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.function = function

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        return self.function(self.first(x), *others)


class Block(nn.Module):
    """A block of a transformer: LayerNorm, attention, Gelu."""

    def __init__(self, width: int = 32, heads: int = 4, causal: bool = False, norm: type[nn.Module] = nn.LayerNorm):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norms = nn.ModuleList([norm(width), norm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal and mask is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


class Masked(nn.Module):
    """A block whose keys are masked by float weights."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return self.block(x, (keep > 0)[:, None, None, :])


class Step(nn.Module):
    """One step of a decoder: one query, and keys and values from before."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.out = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q = self.q(x).reshape(x.shape[0], 1, 4, 8).transpose(1, 2)
        return self.out(F.scaled_dot_product_attention(q, keys, values).transpose(1, 2).reshape(x.shape))


class Vit(nn.Module):
    """A vision transformer whose positions are resized to the image."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 8, stride=8)
        self.token = nn.Parameter(torch.randn(1, 1, 32))
        self.places = nn.Parameter(torch.randn(1, 32, 4, 4))
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x)
        places = F.interpolate(self.places, size=x.shape[2:], mode="bicubic", align_corners=False)
        x = (x + places).flatten(2).transpose(1, 2)
        x = self.blocks(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1))
        return self.head(x[:, 0])


class Rotary(nn.Module):
    """Attention with rotary positions and RMSNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.RMSNorm(32), nn.Linear(32, 96)
        angles = torch.outer(torch.arange(12.0), 100 ** (-torch.arange(0, 8, 2) / 8))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def turned(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        return y.transpose(1, 2).reshape(x.shape)


class Diffusion(nn.Module):
    """A block of a diffusion decoder: GroupNorm, SiLU, attention over pixels, upsampling by size."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.norm, self.second = nn.GroupNorm(4, CHANNELS), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.qkv = nn.Conv2d(CHANNELS, 3 * CHANNELS, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = x + self.second(F.silu(self.norm(x)))
        batch, channels, height, width = x.shape
        q, k, v = self.qkv(x).flatten(2).transpose(1, 2).chunk(3, -1)
        y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        x = x + y.transpose(1, 2).reshape(batch, channels, height, width)
        return F.interpolate(x, size=(2 * height, 2 * width), mode="nearest")


class Unet(nn.Module):
    """A U-Net whose deconvolution has output padding, and whose skip is resized to it."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Mish())
        self.up = nn.ConvTranspose2d(8, 8, 3, stride=2, padding=0, output_padding=1)
        self.out = nn.Conv2d(11, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up(self.down(x))
        skip = F.interpolate(x, size=up.shape[2:], mode="bilinear", align_corners=False)
        return self.out(torch.cat([up, skip], 1))


class Convnext(nn.Module):
    """A block of ConvNeXt: LayerNorm over channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 16, 4, stride=4), nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.norm, self.one, self.two = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.wide(x).permute(0, 2, 3, 1))
        return x + self.two(F.gelu(self.one(y), approximate="tanh")).permute(0, 3, 1, 2)


class Shifted(nn.Module):
    """Windows of Swin: rolled, cut, attended, put back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block = nn.Conv2d(3, 32, 4, stride=4), Block()

    def forward(self, x: Tensor) -> Tensor:
        x = torch.roll(self.first(x), (-2, -2), (2, 3)).permute(0, 2, 3, 1)
        n, h, w, c = x.shape
        cut = x.reshape(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        back = self.block(cut).reshape(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return torch.roll(back, (2, 2), (1, 2))


class Recurrent(nn.Module):
    """A recurrent network in both directions."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.net = kind(8, 12, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x)[0])


class Spectrum(nn.Module):
    """The magnitudes of a short-time Fourier transform, and a convolution over them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.conv = nn.Conv1d(33, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        waves = torch.stft(x, 64, 32, window=self.window, center=False, return_complex=True)
        return self.conv(torch.view_as_real(waves).pow(2).sum(-1).sqrt())


class Warp(nn.Module):
    """A spatial transformer: angles, a grid, samples."""

    def __init__(self) -> None:
        super().__init__()
        self.angles = nn.Linear(3 * 16 * 16, 6)

    def forward(self, x: Tensor) -> Tensor:
        theta = 0.1 * self.angles(x.flatten(1)).reshape(-1, 2, 3) + torch.eye(2, 3)
        return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)


class Regions(nn.Module):
    """Regions of a feature map, as a detector's second stage takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 9, 5)

    def forward(self, x: Tensor, boxes: Tensor) -> Tensor:
        from torchvision.ops import roi_align

        first = torch.zeros(boxes.shape[0], 1)
        rois = torch.cat([first, boxes[:, :2], boxes[:, :2] + boxes[:, 2:].abs() * 4 + 1], 1)
        return self.head(roi_align(self.conv(x), rois, 3, 0.5, 2, aligned=True).flatten(1))


class Deformed(nn.Module):
    """A deformable convolution whose offsets a convolution makes."""

    def __init__(self) -> None:
        super().__init__()
        self.offset, self.mask = nn.Conv2d(3, 18, 3, padding=1), nn.Conv2d(3, 9, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        from torchvision.ops import deform_conv2d

        return deform_conv2d(x, self.offset(x), self.weight, padding=1, mask=self.mask(x).sigmoid())


class Quantised(nn.Module):
    """The nearest entry of a code book."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.codes = nn.Linear(8, 8), nn.Embedding(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.codes(torch.cdist(x, self.codes.weight[None]).argmin(-1))


class Pooled(nn.Module):
    """Means over as many positions as a mask keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)

    def forward(self, x: Tensor, scores: Tensor) -> Tensor:
        keep = (torch.arange(x.shape[1])[None] < scores.argmax(1, keepdim=True) + 1).float()[..., None]
        return (self.first(x) * keep).sum(1) / keep.sum(1).clamp(min=1)


class Vocoder(nn.Module):
    """A one-dimensional decoder with weight norm and Snake."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.utils.parametrizations.weight_norm(nn.ConvTranspose1d(8, 4, 8, stride=4, padding=2))
        self.two = nn.Conv1d(4, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        return torch.tanh(self.two(F.pad(x + torch.sin(x) ** 2, (2, 2), mode="reflect")))


def _reductions(x: Tensor) -> Tensor:
    parts = (x.logsumexp(1), x.norm(dim=1), x.var(1), x.amax(1), x.abs().sum(1), x.prod(1), x.std(1, unbiased=False))
    return torch.stack(parts, 1)


def _activations(x: Tensor) -> Tensor:
    parts = (F.mish(x), F.celu(x, 0.5), F.selu(x), F.hardswish(x), F.softplus(x), F.elu(x), F.gelu(x), F.softsign(x))
    return torch.stack(parts, 1).sum(1)


def _folded(x: Tensor) -> Tensor:
    columns = F.unfold(x, 3, padding=1, stride=2)
    return F.fold(columns.softmax(1), x.shape[2:], 3, padding=1, stride=2)


def _scattered(x: Tensor) -> Tensor:
    places = x.argsort(-1)
    return torch.zeros_like(x).scatter(-1, places, x.cumsum(-1)).tril()


def _pooled(x: Tensor) -> Tensor:
    largest = F.max_pool2d(x, 3, stride=1, dilation=2, padding=1)
    return largest + F.avg_pool2d(x, 3, stride=1, ceil_mode=True)[..., :-1, :-1].mean((2, 3), keepdim=True)


def _adaptive(x: Tensor) -> Tensor:
    return torch.cat([F.adaptive_avg_pool2d(x, 4).flatten(1), F.adaptive_max_pool2d(x, 2).flatten(1)], 1)


def _detected(x: Tensor) -> Tensor:
    scores, boxes = x[:, :4].flatten(2).sigmoid().amax(1), x[:, 4:8].flatten(2).transpose(1, 2)
    best = scores.topk(8, -1)
    chosen = boxes.gather(1, best.indices[..., None].expand(-1, -1, 4))
    return torch.cat([best.values[..., None], chosen], -1)


def _resized(mode: str, antialias: bool = False, **how: object) -> Callable[[], nn.Module]:
    def resize(x: Tensor) -> Tensor:
        return F.interpolate(x, mode=mode, antialias=antialias, **how)  # type: ignore[arg-type]

    return lambda: Wrapped(resize)


def _doubled(x: Tensor) -> Tensor:
    size = (2 * x.shape[2], 2 * x.shape[3])
    return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


IMAGE = ((1, 3, 32, 32),)
TOKENS = ((2, 12, 32),)
PLANE = ("batch", None, "height", "width")
LENGTH = ("batch", "length", None)
OLD, OLD18, NEW18, NEW20, NEW23 = (20, "legacy"), (18, "legacy"), (18, "dynamo"), (20, "dynamo"), (23, "dynamo")

NETS: dict[str, Net] = {
    "block": Net(Block, TOKENS, (OLD, NEW18, NEW20, NEW23)),
    "block_any": Net(Block, TOKENS, (OLD, NEW18, NEW20, NEW23), LENGTH),
    "block_causal": Net(lambda: Block(causal=True), TOKENS, (OLD18, NEW20, NEW23)),
    "block_masked": Net(Masked, ((2, 12, 32), (2, 12)), (OLD, NEW20, NEW23)),
    "step": Net(Step, ((2, 1, 32), (2, 4, 9, 8), (2, 4, 9, 8)), (OLD, NEW18, NEW23)),
    "rotary": Net(Rotary, TOKENS, (NEW18, NEW23)),
    "vit": Net(Vit, IMAGE, (OLD, NEW18, NEW23)),
    "vit_any": Net(Vit, ((1, 3, 48, 32),), (OLD, NEW20), PLANE),
    "diffusion": Net(Diffusion, ((1, 3, 8, 8),), (OLD, NEW20, NEW23)),
    "diffusion_any": Net(Diffusion, ((1, 3, 16, 16),), (OLD, NEW18), PLANE),
    "unet": Net(Unet, IMAGE, (OLD18, NEW20)),
    "unet_any": Net(Unet, IMAGE, (OLD, NEW18), PLANE),
    "convnext": Net(Convnext, IMAGE, (OLD, NEW20)),
    "convnext_any": Net(Convnext, IMAGE, (NEW18,), PLANE),
    "shifted": Net(Shifted, IMAGE, (OLD, NEW20)),
    "lstm": Net(lambda: Recurrent(nn.LSTM), ((2, 6, 8),), (OLD, NEW20)),
    "gru": Net(lambda: Recurrent(nn.GRU), ((2, 6, 8),), (OLD18, NEW18)),
    "stft": Net(Spectrum, ((1, 512),), (NEW18, NEW20)),
    "warp": Net(Warp, ((1, 3, 16, 16),), (OLD, NEW18, NEW20)),
    "regions": Net(Regions, ((1, 3, 32, 32), (5, 4)), (OLD, NEW18, NEW23)),
    "deformed": Net(Deformed, ((1, 3, 12, 12),), (OLD, NEW20, NEW23)),
    "codes": Net(Quantised, ((2, 9, 8),), (OLD, NEW18)),
    "pooled": Net(Pooled, ((2, 9, 8), (2, 9)), (OLD, NEW20)),
    "vocoder": Net(Vocoder, ((1, 8, 20),), (OLD, NEW20)),
    "reductions": Net(lambda: Wrapped(_reductions), IMAGE, (OLD18, NEW18)),
    "activations": Net(lambda: Wrapped(_activations), IMAGE, (OLD, NEW18, NEW20)),
    "folded": Net(lambda: Wrapped(_folded), ((1, 3, 9, 9),), (NEW18, NEW20)),
    "scattered": Net(lambda: Wrapped(_scattered, nn.Linear(8, 8)), ((2, 8, 8),), (OLD, NEW18)),
    "dilated_pool": Net(lambda: Wrapped(_pooled), IMAGE, (OLD, NEW18)),
    "adaptive": Net(lambda: Wrapped(_adaptive), IMAGE, (OLD, NEW20)),
    "detected": Net(lambda: Wrapped(_detected), ((1, 3, 8, 8),), (OLD, NEW20)),
    "antialias": Net(_resized("bilinear", True, size=(13, 17)), IMAGE, (NEW18, NEW20)),
    "antialias_cubic": Net(_resized("bicubic", True, size=(13, 17)), IMAGE, (NEW18,)),
    "cubic": Net(_resized("bicubic", scale_factor=2), IMAGE, (OLD, NEW18)),
    "corners": Net(_resized("bilinear", size=(48, 40), align_corners=True), IMAGE, (OLD, NEW20)),
    "doubled_any": Net(lambda: Wrapped(_doubled), ((1, 3, 16, 16),), (OLD, NEW18, NEW20), PLANE),
    "shuffle": Net(lambda: Wrapped(lambda x: F.pixel_shuffle(x, 2)), IMAGE, (OLD, NEW20)),
    "norms": Net(
        lambda: nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.PReLU(8)
        ),
        IMAGE,
        (OLD, NEW18),
    ),
    "volume": Net(
        lambda: nn.Sequential(
            nn.Conv3d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.ConvTranspose3d(4, 2, 2, stride=2)
        ),
        ((1, 1, 8, 8, 8),),
        (OLD, NEW20),
    ),
}
"""By name; `NAME-OPSET-EXPORTER` is a file of it."""

LARGEST = math.ceil(8 * 2**20)
"""Bytes of all files together."""
