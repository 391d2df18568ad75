"""Shapes on the meta device without torch's own way to them, which is Python over dozens of primitive operations.

A normalisation costs it a millisecond and a bilinear resize ten; a convolution, which is in C++, thirty microseconds.
Whatever is not plainly one of the cases below goes to torch, which also refuses what is to be refused.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from trtconv.exporter.patches import patch

_Found: TypeAlias = "torch.Tensor | None"
_RESIZED = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}
"""Ways of interpolation, and the rank of the only inputs that they take."""


class MetaShapes(TorchFunctionMode):  # type: ignore[misc]
    """Answers for operations whose result's shape is known at once."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        shortcut = _SHORTCUTS.get(func)
        if shortcut is not None:
            try:
                answer = shortcut(*args, **kwargs)
            except (TypeError, AttributeError, IndexError):  # called otherwise than here; torch knows
                answer = None
            if answer is not None:
                return answer
        return func(*args, **kwargs)


@patch("meta_shapes")
def meta_shapes() -> TorchFunctionMode:
    """Answers, while it is active, for operations whose result's shape is known at once."""
    return MetaShapes()


def _on_meta(x: Any) -> bool:
    return type(x) is torch.Tensor and x.is_meta and x.is_floating_point()


def _plain(x: Any) -> bool:
    """Whether it is a tensor of whose result the layout in memory is known too."""
    return _on_meta(x) and x.is_contiguous()


def _pointwise(flag: int, input: Any, *rest: Any, inplace: bool = False, **_: Any) -> _Found:
    """Answers for an activation.

    Args:
        flag: Where behind the input `inplace` is, counted from 0.
        input: The tensor.
        rest: Its arguments by position.
        inplace: As the activation takes it.
    """
    if not _plain(input):
        return None
    return input if inplace or (len(rest) > flag and rest[flag]) else torch.empty_like(input)


def _of_two(a: Any, b: Any) -> _Found:
    if not _plain(a):
        return None
    alike = type(b) in (int, float) or (_plain(b) and b.shape == a.shape and b.dtype == a.dtype)
    return torch.empty_like(a) if alike else None


def _normalised(input: torch.Tensor, shape: Sequence[int], *weights: Any) -> _Found:
    """Answers for a normalisation, unless its weights have another shape or type."""
    fit = all(w is None or (w.is_meta and w.shape == tuple(shape) and w.dtype == input.dtype) for w in weights)
    return torch.empty_like(input) if fit else None


def _batch_norm(
    input: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False, *_: Any, **__: Any
) -> _Found:
    if training or mean is None or var is None or not _plain(input) or input.dim() < 2:
        return None
    return _normalised(input, input.shape[1:2], mean, var, weight, bias)


def _layer_norm(input: Any, shape: Any, weight: Any = None, bias: Any = None, *_: Any, **__: Any) -> _Found:
    if not _plain(input) or not shape or input.shape[-len(shape) :] != tuple(shape):
        return None
    return _normalised(input, shape, weight, bias)


def _group_norm(input: Any, groups: int, weight: Any = None, bias: Any = None, *_: Any, **__: Any) -> _Found:
    # One value a channel is refused by torch in some cases: they are left to it, here and below.
    if not _plain(input) or input.dim() < 3 or math.prod(input.shape[2:]) < 2 or input.shape[1] % groups:
        return None
    return _normalised(input, input.shape[1:2], weight, bias)


def _instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    *_: Any,
    **__: Any,
) -> _Found:
    if not _plain(input) or input.dim() < 3 or math.prod(input.shape[2:]) < 2:
        return None
    return _normalised(input, input.shape[1:2], running_mean, running_var, weight, bias)


def _resized(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> _Found:
    """Answers with what the nearest values are resized to, which is in C++: its sizes come of the same lines."""
    if antialias or not _on_meta(input) or _RESIZED.get(mode) != input.dim():
        return None
    answer: _Found = F.interpolate(input, size, scale_factor, recompute_scale_factor=recompute_scale_factor)
    return answer


_LATER: Mapping[Callable[..., Any], int] = {
    F.relu: 0,
    F.relu6: 0,
    F.silu: 0,
    F.mish: 0,
    F.selu: 0,
    F.hardswish: 0,
    F.hardsigmoid: 0,
    F.leaky_relu: 1,
    F.elu: 1,
    F.hardtanh: 2,
}
_TWO = ("add", "sub", "mul", "div")
_SHORTCUTS: dict[Any, Callable[..., _Found]] = {
    **{func: functools.partial(_pointwise, flag) for func, flag in _LATER.items()},
    **dict.fromkeys((F.gelu, torch.relu, torch.Tensor.relu), functools.partial(_pointwise, 0)),
    **{getattr(owner, name): _of_two for owner in (torch, torch.Tensor) for name in _TWO},
    F.batch_norm: _batch_norm,
    F.layer_norm: _layer_norm,
    F.group_norm: _group_norm,
    F.instance_norm: _instance_norm,
    F.interpolate: _resized,
}
