"""The arithmetic of transposed convolution, in one place. No ONNX, no TensorRT.

A transposed convolution along one axis inserts stride-1 zeros between input elements and convolves. Its *full* result
has

    full = (in - 1) * stride + (kernel - 1) * dilation + 1

elements; everything else - pads, auto_pad, output_shape, output_padding - only says which window of it is returned.
That window is written here as a `Crop`: `begin` elements are cut from the low end and `end` from the high end, so

    out = full - begin - end.

A negative crop *adds* zeros (then bias) at that end: output_padding beyond the end pad does so. TensorRT's
deconvolution takes only crops >= 0, and the same zeros come for free from a kernel that is zero-padded at that end
(`fold`).

Source: ONNX operator ConvTranspose (opset 1, 11, 22); ONNX Runtime 1.23 where the text leaves a choice open (measured).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core import budget
from trtconv.core.frozen import frozen

Sizes = tuple[int, ...]

INT8_CHANNELS = 4
"""Channels of an int8 deconvolution come in packs of four (one dp4a instruction)."""
_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@frozen
class Crop:
    """Elements cut from the full result along one axis; negative where zeros are added."""

    begin: int
    end: int


@frozen
class Geometry:
    """A ConvTranspose as its ONNX node spells it; one entry a spatial axis in every tuple.

    Args:
        kernel: Kernel size in taps.
        strides: Distance of input elements in the output.
        dilations: Distance of kernel taps.
        begin_pads: The `pads` attribute, low ends (zeros where auto_pad or output_shape rules).
        end_pads: The `pads` attribute, high ends.
        output_padding: Extra elements at the high end.
        group: Number of groups.
        auto_pad: "NOTSET", "SAME_UPPER", "SAME_LOWER" or "VALID".
        output_shape: Spatial output sizes that the node asks for, or None.
    """

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    begin_pads: Sizes
    end_pads: Sizes
    output_padding: Sizes
    group: int = 1
    auto_pad: str = "NOTSET"
    output_shape: Sizes | None = None

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    def full(self, sizes: Sequence[int]) -> Sizes:
        """Returns the full result's size for an input of these spatial sizes."""
        return tuple(
            (n - 1) * s + (k - 1) * d + 1
            for n, s, k, d in zip(sizes, self.strides, self.kernel, self.dilations, strict=True)
        )

    @property
    def is_explicit(self) -> bool:
        """Whether pads alone say everything: no auto_pad, output_shape or output_padding, no negative pad."""
        return (
            self.auto_pad == "NOTSET"
            and self.output_shape is None
            and not any(self.output_padding)
            and min((*self.begin_pads, *self.end_pads), default=0) >= 0
        )

    @property
    def is_strided_and_dilated(self) -> bool:
        """Whether some axis has stride > 1 and some axis has dilation > 1."""
        return max(self.strides) > 1 and max(self.dilations) > 1

    def excess_axes(self, sizes: Sequence[int] | None = None) -> tuple[int, ...]:
        """Returns the axes that ask for more zeros at the high end than a transposed convolution has.

        That is an output_padding, or an output_shape beyond the full result, of max(stride, dilation) or more. PyTorch
        refuses it; ONNX Runtime computes garbage for such an output_shape (measured, 1.23).

        Args:
            sizes: Spatial input sizes where known; only output_shape needs them.

        Source: torch.nn.ConvTranspose2d ("output padding must be smaller than either stride or dilation").
        """
        extra = self.output_padding
        if self.output_shape is not None and sizes is not None and len(sizes) == self.rank:
            extra = tuple(out - full for out, full in zip(self.output_shape, self.full(sizes), strict=True))
        rows = zip(extra, self.strides, self.dilations, strict=True)
        return tuple(axis for axis, (more, stride, dilation) in enumerate(rows) if more >= max(stride, dilation))


def geometry_of(attrs: Mapping[str, Any], weight_shape: Sequence[int | None] | None) -> Geometry | str:
    """Reads a ConvTranspose.

    Args:
        attrs: The node's attributes by name, with Python values.
        weight_shape: (C_in, C_out/group, k...) where known; gives the kernel size where no attribute does.

    Returns:
        The geometry, or why the node has none that makes sense.
    """
    kernel = attrs.get("kernel_shape") or (None if weight_shape is None else weight_shape[2:])
    if kernel is None or None in kernel:
        return "its kernel size is not known: no kernel_shape attribute, and the weight has no static shape"
    if not kernel:
        return f"its weight has the shape {list(weight_shape or ())}, and no axis for a kernel"
    if min(kernel) < 1:
        return f"its kernel has the sizes {list(kernel)}, which must be at least 1"
    rank = len(kernel)
    if weight_shape is not None and list(weight_shape[2:]) != list(kernel) and None not in weight_shape[2:]:
        return f"kernel_shape {list(kernel)} does not match the weight's {list(weight_shape)}"
    pads = list(attrs.get("pads") or [0] * 2 * rank)
    lengths = {
        "strides": attrs.get("strides") or [1] * rank,
        "dilations": attrs.get("dilations") or [1] * rank,
        "output_padding": attrs.get("output_padding") or [0] * rank,
    }
    for name, values in (*lengths.items(), ("pads", pads)):
        count = 2 * rank if name == "pads" else rank
        if len(values) != count:
            return f"{name} has {len(values)} entries, a {rank}-D kernel needs {count}"
    if min((*lengths["strides"], *lengths["dilations"])) < 1 or min(lengths["output_padding"]) < 0:
        return "strides and dilations must be at least 1 and output_padding at least 0"
    auto_pad = str(attrs.get("auto_pad") or "NOTSET")
    if auto_pad not in _AUTO_PADS:
        return f"auto_pad {auto_pad!r} is not one of {', '.join(_AUTO_PADS)}"
    shape = attrs.get("output_shape")
    if shape and len(shape) not in (rank, rank + 2):
        return f"output_shape has {len(shape)} entries, a {rank}-D kernel needs {rank}"
    return Geometry(
        kernel=tuple(int(k) for k in kernel if k is not None),
        strides=tuple(lengths["strides"]),
        dilations=tuple(lengths["dilations"]),
        begin_pads=tuple(pads[:rank]),
        end_pads=tuple(pads[rank:]),
        output_padding=tuple(lengths["output_padding"]),
        group=int(attrs.get("group", 1)),
        auto_pad=auto_pad,
        output_shape=tuple(shape[-rank:]) if shape else None,
    )


def crops(geometry: Geometry, sizes: Sequence[int] | None) -> tuple[Crop, ...] | None:
    """Returns the window that a node returns, one `Crop` a spatial axis.

    Args:
        geometry: The node.
        sizes: Spatial input sizes, or None where they are not known; only output_shape needs them.

    Returns:
        The crops, or None where they depend on sizes that are not known.
    """
    if geometry.output_shape is not None:
        # A malformed node may have an input of another rank than its kernel.
        fits = sizes is not None and len(sizes) == geometry.rank
        return _crops_for_output_shape(geometry, sizes) if sizes is not None and fits else None
    if geometry.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return tuple(_same_crop(geometry, axis) for axis in range(geometry.rank))
    zeros = (0,) * geometry.rank
    begins, ends = (zeros, zeros) if geometry.auto_pad == "VALID" else (geometry.begin_pads, geometry.end_pads)
    return tuple(Crop(b, e - o) for b, e, o in zip(begins, ends, geometry.output_padding, strict=True))


def _same_crop(geometry: Geometry, axis: int) -> Crop:
    """SAME_*: crop to in * stride, where the full result (with output_padding) is at least that long."""
    span = (geometry.kernel[axis] - 1) * geometry.dilations[axis] + 1
    extra = geometry.output_padding[axis]
    # A stride longer than the kernel leaves nothing to crop; ONNX Runtime then returns less than in * stride.
    total = max(0, span + extra - geometry.strides[axis])
    begin = split_begin(total, geometry.auto_pad)
    return Crop(begin, total - begin - extra)


def _crops_for_output_shape(geometry: Geometry, sizes: Sequence[int]) -> tuple[Crop, ...]:
    assert geometry.output_shape is not None
    result = []
    for full, extra, out in zip(geometry.full(sizes), geometry.output_padding, geometry.output_shape, strict=True):
        begin = split_begin(max(0, full + extra - out), geometry.auto_pad)
        result.append(Crop(begin, full - begin - out))
    return tuple(result)


def split_begin(total: int, auto_pad: str) -> int:
    """Returns the low end's share of a total padding: the smaller half for SAME_UPPER, else the larger."""
    return total // 2 if auto_pad == "SAME_UPPER" else total - total // 2


def output_sizes(geometry: Geometry, sizes: Sequence[int]) -> Sizes:
    """Returns the spatial output sizes of a node for an input of these spatial sizes."""
    window = crops(geometry, sizes)
    assert window is not None
    return tuple(full - c.begin - c.end for full, c in zip(geometry.full(sizes), window, strict=True))


@frozen
class Growth:
    """How a kernel or an input is lengthened by zeros so that every crop is >= 0.

    Args:
        low: Zeros put before it, an entry a spatial axis.
        high: Zeros put after it.
        crops: The crops that go with the longer kernel or input.
    """

    low: Sizes
    high: Sizes
    crops: tuple[Crop, ...]

    @property
    def is_needed(self) -> bool:
        """Whether any zero is added."""
        return any(self.low) or any(self.high)


def fold(geometry: Geometry, window: Sequence[Crop]) -> Growth:
    """Turns negative crops into zero taps of the kernel.

    A zero tap lengthens the full result by one dilation and adds nothing but zeros there, so
    `taps = ceil(-crop / dilation)` taps and a crop of what they add too much give the same window.

    Args:
        geometry: The node.
        window: Its crops.

    Returns:
        The taps; none where no crop is negative.
    """
    return _grown(window, geometry.dilations)


def lengthen(geometry: Geometry, window: Sequence[Crop]) -> Growth:
    """Turns negative crops into zeros around the input.

    A zero at an end of the input lengthens the full result by one stride there and adds nothing but zeros, so
    `zeros = ceil(-crop / stride)` zeros and a crop of what they add too much give the same window.

    Args:
        geometry: The node.
        window: Its crops.
    """
    return _grown(window, geometry.strides)


def _grown(window: Sequence[Crop], steps: Sizes) -> Growth:
    """Returns how many zeros make every crop >= 0; each is worth one step."""
    low = tuple(_zeros(c.begin, step) for c, step in zip(window, steps, strict=True))
    high = tuple(_zeros(c.end, step) for c, step in zip(window, steps, strict=True))
    rows = zip(window, low, high, steps, strict=True)
    return Growth(low, high, tuple(Crop(c.begin + a * step, c.end + b * step) for c, a, b, step in rows))


def _zeros(crop: int, step: int) -> int:
    return -(min(crop, 0) // step)


def extend_kernel(weights: NDArray[Any], folding: Growth, fill: NDArray[Any] | int) -> NDArray[Any]:
    """Returns weights (C_in, C_out/group, k...) with the folding's taps added.

    Args:
        weights: Kernel of a ConvTranspose.
        folding: Taps to add.
        fill: What stands for zero: 0, or the zero point of quantised weights, broadcastable to `weights`.
    """
    shape = tuple(lo + k + hi for lo, k, hi in zip(folding.low, weights.shape[2:], folding.high, strict=True))
    grown = _filled((*weights.shape[:2], *shape), weights, fill)
    inner = tuple(slice(lo, lo + k) for lo, k in zip(folding.low, weights.shape[2:], strict=True))
    window: tuple[Any, ...] = (..., *inner)
    grown[window] = weights
    return grown


def dilate_kernel(weights: NDArray[Any], dilations: Sequence[int], fill: NDArray[Any] | int = 0) -> NDArray[Any]:
    """Returns weights (C_in, C_out/group, k...) with dilation-1 zeros written between taps; dilation is then 1."""
    shape = tuple((k - 1) * d + 1 for k, d in zip(weights.shape[2:], dilations, strict=True))
    grown = _filled((*weights.shape[:2], *shape), weights, fill)
    taps: tuple[Any, ...] = (..., *(slice(None, None, d) for d in dilations))
    grown[taps] = weights
    return grown


def ungroup_kernel(weights: NDArray[Any], group: int) -> NDArray[Any]:
    """Returns weights (C_in, C_out/group, k...) of several groups as those of one, (C_in, C_out, k...)."""
    ins, outs = weights.shape[0] // group, weights.shape[1]
    grown = _filled((weights.shape[0], outs * group, *weights.shape[2:]), weights, 0)
    for number in range(group):
        inputs = slice(number * ins, (number + 1) * ins)
        grown[inputs, number * outs : (number + 1) * outs] = weights[inputs]
    return grown


def _filled(shape: Sizes, like: NDArray[Any], fill: NDArray[Any] | int) -> NDArray[Any]:
    budget.spend("elements", math.prod(shape), f"a kernel of {list(shape)}")
    grown = np.empty(shape, dtype=like.dtype)
    grown[...] = fill
    return grown


def along(geometry: Geometry, axis: int) -> Geometry:
    """Returns one spatial axis of a node as a node of its own, in one group."""
    shape = geometry.output_shape
    return Geometry(
        kernel=geometry.kernel[axis : axis + 1],
        strides=geometry.strides[axis : axis + 1],
        dilations=geometry.dilations[axis : axis + 1],
        begin_pads=geometry.begin_pads[axis : axis + 1],
        end_pads=geometry.end_pads[axis : axis + 1],
        output_padding=geometry.output_padding[axis : axis + 1],
        auto_pad=geometry.auto_pad,
        output_shape=None if shape is None else shape[axis : axis + 1],
    )


def tap_counts(kernel: int, stride: int, dilation: int, size: int) -> Sizes:
    """Returns how many products meet in each element of the full result along one axis."""
    counts = [0] * ((size - 1) * stride + (kernel - 1) * dilation + 1)
    for element in range(size):
        for tap in range(kernel):
            counts[element * stride + tap * dilation] += 1
    return tuple(counts)


def tap_cycle(kernel: int, stride: int, dilation: int) -> Sizes:
    """Returns how many products meet in an element of the full result far from the edges, by index modulo stride.

    Equal counts mean an even result; a stride that does not divide the kernel makes them differ (checkerboard).
    """
    budget.spend("elements", stride, "a stride")
    # Taps t and t + period meet in the same element.
    period = stride // math.gcd(dilation, stride)
    counts = [0] * stride
    for tap in range(min(kernel, period)):
        counts[tap * dilation % stride] = (kernel - tap - 1) // period + 1
    return tuple(counts)
