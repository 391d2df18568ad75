"""Adaptive pooling of sizes that change, in operations that hold for every size.

Both exporters write it for the example's sizes: as a pooling with a fixed window, which is another one at other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from trtconv.exporter.patches import patch

_MEANS = {torch.adaptive_avg_pool1d: 1, F.adaptive_avg_pool2d: 2, F.adaptive_avg_pool3d: 3}
_MAXIMA = {F.adaptive_max_pool1d: 1, F.adaptive_max_pool2d: 2, F.adaptive_max_pool3d: 3}
_MOST = 64
"""Windows of maxima along an axis: each is a few nodes."""


class _AdaptivePooling(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _MEANS:
            return _pooled(_means, _MEANS[func], func, *args, **(kwargs or {}))
        if func in _MAXIMA:
            return _pooled(_maxima, _MAXIMA[func], func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@patch("adaptive_pooling")
def adaptive_pooling() -> TorchFunctionMode:
    """Writes adaptive pooling anew while it is active, unless it is to one value, which exporters write rightly."""
    return _AdaptivePooling()


def _pooled(
    pool: Callable[..., torch.Tensor],
    rank: int,
    func: Any,
    input: torch.Tensor,
    output_size: Any,
    return_indices: bool = False,
) -> Any:
    counts = list(output_size) if isinstance(output_size, Sequence) else [output_size] * rank
    static = all(type(size) is int for size in input.shape[-rank:])
    by_parts = pool is _maxima and any(count is not None and not _countable(count) for count in counts)
    if static or return_indices or by_parts or all(type(count) is int and count == 1 for count in counts):
        return func(input, output_size, return_indices) if return_indices else func(input, output_size)
    for axis, count in zip(range(-rank, 0), counts, strict=True):
        if count is not None:
            input = pool(input, axis, count)
    return input


def _countable(count: Any) -> bool:
    return type(count) is int and count <= _MOST


def _means(x: torch.Tensor, axis: int, count: Any) -> torch.Tensor:
    """Returns the means of `count` windows that cover an axis, as PyTorch lays them: a product with a matrix."""
    if type(count) is int and count == 1:
        return x.mean(axis, keepdim=True)
    size = x.shape[axis]
    number = torch.arange(count, device=x.device).unsqueeze(1)
    start = torch.div(number * size, count, rounding_mode="trunc")
    end = torch.div((number + 1) * size + count - 1, count, rounding_mode="trunc")
    place = torch.arange(size, device=x.device)
    inside = torch.logical_and(place >= start, place < end)
    weights = inside.to(x.dtype) / (end - start).to(x.dtype)
    if axis == -1:
        return torch.matmul(x, weights.transpose(0, 1))
    return torch.matmul(weights, x) if axis == -2 else torch.matmul(weights, x.transpose(axis, -2)).transpose(axis, -2)


def _maxima(x: torch.Tensor, axis: int, count: int) -> torch.Tensor:
    """Returns the largest values of the same windows."""
    size = x.shape[axis]
    before = (slice(None),) * (x.dim() + axis)
    windows = [(*before, slice(i * size // count, ((i + 1) * size + count - 1) // count)) for i in range(count)]
    return torch.cat([x[window].amax(axis, keepdim=True) for window in windows], axis)
