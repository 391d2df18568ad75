"""Ways of writing forward that exporters get wrong, each a function of a module's convolutions and its input."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Rounded(torch.autograd.Function):
    """Rounds, with a gradient of its own, and no ONNX symbolic."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Rounds to quarters."""
        return torch.round(x * 4) / 4


def _plain(x: Tensor) -> Tensor:
    """Has a branch on a size and a loop over one, which TorchScript keeps."""
    if x.shape[2] > 24:
        x = x * 2
    y = x
    for i in range(x.shape[3] // 8):
        y = y + float(i)
    return y


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    scripted = torch.jit.script(_plain)
Way = Callable[["Ways", Tensor], Any]


def _views(net: Ways, x: Tensor) -> Tensor:
    y = net.conv(x).clone()
    y[:, :, ::2] = 0
    y[:, 1:, :, 1::3] += 1
    y[:, 0].mul_(2)
    y[:, :, -1].zero_()
    return y


def _written_input(net: Ways, x: Tensor) -> Tensor:
    x.mul_(2)
    y = net.conv(x)
    x[:, 0] += 1
    return y + x


def _folded(net: Ways, x: Tensor) -> Tensor:
    windows = F.unfold(net.conv(x), 4, stride=2, padding=1)
    return F.fold(windows, tuple(x.shape[2:]), 4, stride=2, padding=1)


def _top(net: Ways, x: Tensor) -> tuple[Tensor, Tensor]:
    flat = net.conv(x).flatten(2)
    values, places = flat.topk(flat.shape[2] // 4, 2)
    return values, places.sort(-1)[0]


def _counted(net: Ways, x: Tensor) -> Tensor:
    net.calls += 1
    net.seen = net.seen + 1
    return net.conv(x) * net.seen


def _cached(net: Ways, x: Tensor) -> Tensor:
    if net.grid is None or net.grid.shape[-2:] != x.shape[-2:]:
        net.grid = torch.linspace(-1, 1, x.shape[-1]).expand(x.shape[-2], -1)
    return net.conv(x) + net.grid


def _padded_outputs(net: Ways, x: Tensor) -> Tensor:
    y = net.down(x)
    padding = ((x.shape[2] - 1) % 3, (x.shape[3] - 1) % 3)
    return F.conv_transpose2d(y, net.kernel, stride=3, padding=1, output_padding=padding)


def _complex(net: Ways, x: Tensor) -> Tensor:
    z = torch.view_as_complex(torch.stack([x, net.conv(x)], -1))
    return torch.view_as_real(z * z.conj() + z)


def _trained_norm(net: Ways, x: Tensor) -> Tensor:
    net.norm.train()
    return net.norm(net.conv(x))


INDEXING: Mapping[str, Way] = {
    "views": _views,
    "written input": _written_input,
    "backwards": lambda net, x: net.conv(x).flip(3)[:, :, torch.arange(x.shape[2] - 1, -1, -2)],
    "rolled": lambda net, x: x[:, [2, 0, 1]].roll((3, -5), (2, 3)),
    "top": _top,
    "selected": lambda net, x: x[x > 0],
    "complex": _complex,
    "a number of the graph": lambda net, x: net.conv(x) * x.std().item(),
}
RESIZING: Mapping[str, Way] = {
    "folded": _folded,
    "output size": lambda net, x: net.up(net.strided(x), output_size=[x.shape[2], x.shape[3]]),
    "output padding": _padded_outputs,
    "fractions": lambda net, x: F.adaptive_avg_pool2d(net.conv(x), (x.shape[2] // 3, 7)),
    "recomputed": lambda net, x: F.interpolate(net.conv(x), scale_factor=1.5, recompute_scale_factor=True),
    "squeezed": lambda net, x: net.conv(x).mean((2, 3)).squeeze(),
}
CALLS: Mapping[str, Way] = {
    "autograd": lambda net, x: Rounded.apply(net.conv(x)),
    "checkpoint": lambda net, x: checkpoint(lambda z: net.conv(z).relu(), x, use_reentrant=False),
    "normalised weights": lambda net, x: net.weighted(x),
    "nothing": lambda net, x: (net.conv(x), None, {"a": x.mean(), "b": None}),
    "constants": lambda net, x: (x, torch.ones(3)),
    "counted": _counted,
    "where": lambda net, x: torch.where(x.mean() > 0, net.conv(x), -net.conv(x)),
}
TRACED: Mapping[str, Way] = {
    "scripted": lambda net, x: scripted(net.conv(x)),
    "cached": _cached,
    "batch statistics": _trained_norm,
}
GROUPS = {"indexing": INDEXING, "resizing": RESIZING, "calls": CALLS, "traced": TRACED}
REFUSED: Mapping[str, Way] = {
    "noise": lambda net, x: net.conv(x) + torch.randn_like(x),
    "dropout": lambda net, x: F.dropout(net.conv(x), 0.5),
    "numpy": lambda net, x: torch.from_numpy(net.conv(x).numpy() * 2),
    "a loop over values": lambda net, x: next((x for _ in range(8) if net.conv(x).abs().max() > 1), -x),
    "a size of values": lambda net, x: F.interpolate(net.conv(x), size=int(x.abs().max() * 9) + 3),
}
"""Of which no file can be right."""


class Ways(nn.Module):
    """Returns what each of some ways computes, so that a file that is wrong says of which."""

    def __init__(self, ways: Mapping[str, Way]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.ways = ways
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.strided, self.up = nn.Conv2d(3, 4, 3, 2, 1), nn.ConvTranspose2d(4, 3, 3, 2, 1)
        self.down, self.kernel = nn.Conv2d(3, 4, 3, 3, 1), nn.Parameter(torch.randn(4, 3, 3, 3))
        self.weighted = nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)),
            nn.utils.parametrizations.spectral_norm(nn.ConvTranspose2d(4, 3, 4, 2, 1)),
        )
        self.weighted.register_forward_hook(lambda module, args, out: out[..., 1:-1, 1:-1] * 2)
        self.weighted.register_forward_pre_hook(lambda module, args: (F.pad(args[0], (1, 1, 1, 1), mode="reflect"),))
        self.norm = nn.BatchNorm2d(3)
        self.register_buffer("seen", torch.zeros(()))
        self.grid: Tensor | None = None
        self.calls = 0

    def forward(self, x: Tensor) -> dict[str, Any]:
        """Computes all of them on copies of the input."""
        return {name: way(self, x.clone()) for name, way in self.ways.items()}


class Indexed(nn.Module):
    """Takes and writes at places that an input says, some of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor, idx: Tensor) -> tuple[Tensor, ...]:
        """Puts, adds, scatters and gathers."""
        y = self.conv(x)
        zeros, ones = torch.zeros_like(idx), torch.ones(idx.shape[0], x.shape[3])
        put = y.index_put((zeros, zeros, idx), ones, accumulate=True)
        added = y.index_add(2, idx, torch.ones(y.shape[0], 3, idx.shape[0], y.shape[3]))
        places = idx[None, None, None].expand(y.shape[0], 3, 1, -1)
        scattered = y.scatter_add(3, places, torch.ones(y.shape[0], 3, 1, idx.shape[0]))
        return put, added, scattered, y[:, :, idx]


class Masked(nn.Module):
    """Means and attention over what a mask and lengths leave, of which nothing may be left."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """Masks by both."""
        y = self.linear(x)
        short = torch.arange(x.shape[1], device=x.device)[None] >= lengths[:, None]
        weights = mask[..., None].to(y.dtype)
        mean = (y * weights).sum(1) / weights.sum(1)
        return mean, y.masked_fill(~mask[..., None], float("-inf")).softmax(1), y.masked_fill(short[..., None], 0.0)
