"""Transposed convolutions whose output size is computed: `ConvTranspose2d(...)(x, output_size=skip.shape[-2:])`.

PyTorch turns the size into an output_padding, which is an attribute in ONNX: torch.export's exporter has no
translation for one that is computed, and the tracing exporter writes the example's. The result with the largest
output_padding begins with that of every smaller one, so the largest is exported, and a Slice to the size.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.modules.conv import _ConvTransposeNd
from torch.overrides import TorchFunctionMode

from trtconv.exporter.patches import patch, replaced

_FUNCTIONS: dict[int, Callable[..., torch.Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}
_RANKS = {function: rank for rank, function in _FUNCTIONS.items()}


class _Requested(list[int]):
    """An output_padding that is large enough, and the sizes that were asked for."""

    def __init__(self, padding: Sequence[int], sizes: Sequence[Any]) -> None:
        super().__init__(padding)
        self.sizes = list(sizes)


@functools.cache
def sized_operator() -> Any:
    """Returns `trtconv::sized_conv_transpose`: an operator that has the asked size, whatever torch.export can prove.

    As plain operations torch.export would have to prove that the slice stays inside, and fixes sizes where it cannot.
    """

    def sized(
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        stride: Sequence[int],
        padding: Sequence[int],
        output_padding: Sequence[int],
        groups: int,
        dilation: Sequence[int],
        size: Sequence[int],
    ) -> torch.Tensor:
        run = _FUNCTIONS[x.dim() - 2]
        return _cut(run(x, weight, bias, stride, padding, output_padding, groups, dilation), size).clone()

    def shape_only(x: torch.Tensor, weight: torch.Tensor, *arguments: Any) -> torch.Tensor:
        groups, size = arguments[4], arguments[6]
        return x.new_empty((x.shape[0], weight.shape[1] * groups, *size))

    torch.library.custom_op("trtconv::sized_conv_transpose", sized, mutates_args=()).register_fake(shape_only)
    return torch.ops.trtconv.sized_conv_transpose.default


def translation() -> dict[Any, Callable[..., Any]]:
    """Returns how torch.export's exporter writes the operator: ConvTranspose and Slice."""
    from onnxscript import FLOAT, INT64
    from onnxscript import opset18 as op

    def sized_conv_transpose(
        x: FLOAT,
        weight: FLOAT,
        bias: FLOAT | None,
        stride: Sequence[int],
        padding: Sequence[int],
        output_padding: Sequence[int],
        groups: int,
        dilation: Sequence[int],
        size: INT64,
    ) -> FLOAT:
        full = op.ConvTranspose(
            x,
            weight,
            bias,
            strides=stride,
            pads=[*padding, *padding],
            output_padding=output_padding,
            group=groups,
            dilations=dilation,
        )
        axes = list(range(2, 2 + len(stride)))
        return op.Slice(full, op.Constant(value_ints=[0] * len(axes)), size, op.Constant(value_ints=axes))

    return {sized_operator(): sized_conv_transpose}


@patch("output_size")
@contextlib.contextmanager
def computed_output_sizes(*, operator: bool) -> Iterator[SizedConvolutions]:
    """While active, transposed convolutions to a computed size are the largest one and a slice.

    Modules no longer check that the size can be had: trials at many sizes do that.

    Args:
        operator: Whether the two are one operator of ours, for torch.export, or operations of PyTorch, for tracing.

    Yields:
        What counts them.
    """
    with replaced(_ConvTransposeNd, "_output_padding", _remembered), SizedConvolutions(operator) as mode:
        yield mode


_unchanged: Any = getattr(_ConvTransposeNd, "_output_padding", None)


def _remembered(
    self: Any, x: torch.Tensor, output_size: Sequence[Any] | None, stride: Sequence[int], *rest: Any, **named: Any
) -> list[int]:
    """Stands in for `_ConvTransposeNd._output_padding`."""
    if output_size is None or _constant(output_size):
        padding: list[int] = _unchanged(self, x, output_size, stride, *rest, **named)
        return padding
    return _Requested([s - 1 for s in stride], list(output_size)[-len(stride) :])


def _constant(sizes: Sequence[Any]) -> bool:
    return all(type(size) is int for size in sizes)


class SizedConvolutions(TorchFunctionMode):  # type: ignore[misc]
    """Writes transposed convolutions to a computed size otherwise.

    Args:
        operator: As in `computed_output_sizes`.
    """

    def __init__(self, operator: bool) -> None:
        super().__init__()
        self._operator = operator
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _RANKS:
            return self._convolve(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _convolve(
        self,
        func: Any,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> torch.Tensor:
        rank = _RANKS[func]
        strides, pads, extra, dilations = (_spread(v, rank) for v in (stride, padding, output_padding, dilation))
        if isinstance(extra, _Requested):
            largest, sizes = list(extra), extra.sizes
        elif _constant(extra):
            return func(input, weight, bias, stride, padding, output_padding, groups, dilation)
        else:
            largest = [max(s, d) - 1 for s, d in zip(strides, dilations, strict=True)]
            taps = [d * (k - 1) + 1 for d, k in zip(dilations, weight.shape[2:], strict=True)]
            counts = input.shape[-rank:]
            sizes = [
                (n - 1) * s - 2 * p + t + e for n, s, p, t, e in zip(counts, strides, pads, taps, extra, strict=True)
            ]
        self.count += 1
        if not self._operator:
            return _cut(func(input, weight, bias, strides, pads, largest, groups, dilations), sizes)
        single = input.dim() == rank + 1
        batch = input.unsqueeze(0) if single else input
        result = sized_operator()(batch, weight, bias, strides, pads, largest, groups, dilations, sizes)
        return result.squeeze(0) if single else result


def _spread(value: Any, rank: int) -> Any:
    """Returns one entry an axis; what is a list stays the same object."""
    if isinstance(value, list):
        return value
    entries = list(value) if isinstance(value, tuple) else [value]
    return entries * rank if len(entries) == 1 else entries


def _cut(full: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    axes = range(full.dim() - len(sizes), full.dim())
    for axis, size in zip(axes, sizes, strict=True):
        full = full[(slice(None),) * axis + (slice(0, size),)]
    return full
