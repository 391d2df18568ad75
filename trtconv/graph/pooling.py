"""The arithmetic of pooling windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx

from trtconv.core.frozen import frozen


@frozen
class PoolAxis:
    """A pooling along one axis, its size rounded up.

    Args:
        size: Of the input.
        reach: How far a window reaches, dilation included.
        stride: From one window to the next.
        begin: Padding at the low end.
        end: Padding at the high end.
    """

    size: int
    reach: int
    stride: int
    begin: int
    end: int

    @property
    def rounded_up(self) -> int:
        """How many windows there are, also those that begin in the end padding: TensorRT's count."""
        return -(-(self.size + self.begin + self.end - self.reach) // self.stride) + 1

    @property
    def count(self) -> int:
        """How many windows there are in ONNX, which leaves out a last one that begins in the end padding."""
        last = (self.rounded_up - 1) * self.stride
        return self.rounded_up - (last >= self.size + self.begin)

    @property
    def exact_end(self) -> int | None:
        """The end padding with which rounding down gives `count`, the nearest to the one asked for; None without one.

        Padding below zero would be a crop, which no pooling does.
        """
        least = (self.count - 1) * self.stride + self.reach - self.size - self.begin
        most = least + self.stride - 1
        return None if most < 0 else max(min(max(self.end, least), most), 0)


def rounds_up(attributes: Iterable[onnx.AttributeProto]) -> bool:
    """Whether the sizes of a pooling with such attributes are rounded up."""
    return any(attribute.name == "ceil_mode" and attribute.i == 1 for attribute in attributes)


def axes_of_pool(attributes: Mapping[str, Any], sizes: Sequence[int | None]) -> list[PoolAxis | None]:
    """Returns a pooling with ceil_mode axis by axis, None for each axis whose size is not known.

    Args:
        attributes: Of the ONNX node: kernel_shape, strides, pads, dilations; auto_pad is not looked at.
        sizes: Spatial sizes of the input.
    """
    kernel = attributes["kernel_shape"]
    rank = len(kernel)
    strides, dilations = attributes.get("strides") or [1] * rank, attributes.get("dilations") or [1] * rank
    pads = attributes.get("pads") or [0] * (2 * rank)
    return [
        None if size is None else PoolAxis(size, (k - 1) * d + 1, s, pads[i], pads[i + rank])
        for i, (size, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True))
    ]


def can_exceed(attributes: Mapping[str, Any]) -> bool:
    """Whether a pooling with ceil_mode may have a last window that begins in its end padding, at any size."""
    kernel = attributes.get("kernel_shape") or []
    axes = axes_of_pool(attributes, [1] * len(kernel)) if kernel else []
    return any(axis is not None and axis.stride + axis.end > axis.reach for axis in axes)
