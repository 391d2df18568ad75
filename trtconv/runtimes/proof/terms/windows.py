"""Terms of what moves a window: convolutions, transposed ones, pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trtconv.runtimes.proof.terms.term import FLOATS, Sizes, Term, Wordless, squeezed, unsqueezed


class Window(NamedTuple):
    """How a window is moved.

    Args:
        strides: How far, for each axis.
        low: What is padded before each; of a transposed convolution, what is cut off.
        high: The same behind.
        dilations: How far its elements lie from one another.
    """

    strides: Sizes
    low: Sizes
    high: Sizes
    dilations: Sizes

    @property
    def flat(self) -> Window:
        """Of an image one pixel wide: TensorRT's parsers convolve and pool images and volumes alone."""
        return Window(*((*values, rest) for values, rest in zip(self, (1, 0, 0, 1), strict=True)))

    def require(self, axes: int) -> None:
        """Raises `Wordless` where it is not for so many axes, or of no use; there is one at least."""
        if not len(self.strides) == len(self.low) == len(self.high) == len(self.dilations) == axes:
            raise Wordless("windows of another rank")
        if min((*self.strides, *self.dilations)) < 1 or min((*self.low, *self.high)) < 0:
            raise Wordless("negative pads")


def convolved(source: Term, kernel: Term, window: Window, bias: Term | None, groups: int, transpose: bool) -> Term:
    """Returns a convolution.

    Args:
        source: [batch, channels, *sizes].
        kernel: In ONNX's layout: outputs first; of a transposed convolution, inputs first.
        window: How the kernel is moved.
        bias: One for each channel of the result; None: nothing is added.
        groups: Into which both kinds of channels are divided.
        transpose: Whether it is a transposed one.
    """
    axes = source.rank - 2
    window.require(axes)
    if kernel.rank != source.rank or kernel.dtype != source.dtype or not kernel.is_static or groups < 1:
        raise Wordless("kernels of another rank")
    if axes == 1:
        image = unsqueezed(source, (3,))
        return squeezed(convolved(image, unsqueezed(kernel, (3,)), window.flat, bias, groups, transpose), (3,))
    if bias is not None and (bias.rank, bias.dtype) != (1, source.dtype):
        raise Wordless("a bias of another type or rank")
    maps = kernel.sizes[1] * groups if transpose else kernel.sizes[0]
    measure = _spread if transpose else _covered
    sizes = (source.sizes[0], maps, *map(measure, source.sizes[2:], kernel.sizes[2:], *window))
    operands = (source, kernel) if bias is None else (source, kernel, bias)
    return Term("deconv" if transpose else "conv", operands, (*window, groups), source.dtype, sizes)


def _covered(size: int, window: int, stride: int, low: int, high: int, dilation: int) -> int:
    if size < 0:
        return -1
    count = (size + low + high - (window - 1) * dilation - 1) // stride + 1
    if count < 1:
        raise Wordless("a window larger than what it is moved over")
    return count


def _leaves(size: int, window: int, stride: int, low: int, high: int) -> bool:
    """Whether some elements are left behind the last whole window, or that is not known."""
    return size < 0 or (size + low + high - window) % stride != 0


def _spread(size: int, window: int, stride: int, low: int, high: int, dilation: int) -> int:
    if size < 0:
        return -1
    left = stride * (size - 1) + (window - 1) * dilation + 1 - low - high
    if left < 1:
        raise Wordless("nothing is left")
    return left


def pooled(
    kind: str, source: Term, shape: Sequence[int], window: Window, counts_padding: bool, rounds_up: bool
) -> Term:
    """Returns a pool that ends where its last whole window does.

    Args:
        kind: "MAX" or "AVERAGE".
        source: [batch, channels, *sizes].
        shape: Of the window.
        window: How it is moved.
        counts_padding: Whether an average counts what is padded.
        rounds_up: Whether there is a window more where some elements are left, which has no words.
    """
    axes = source.rank - 2
    window.require(axes)
    if axes == 1:
        image = unsqueezed(source, (3,))
        return squeezed(pooled(kind, image, (*shape, 1), window.flat, counts_padding, rounds_up), (3,))
    if source.dtype not in FLOATS or kind not in ("MAX", "AVERAGE") or set(window.dilations) != {1}:
        raise Wordless("a pool of its own")
    if any(pad >= size for size, *pads in zip(shape, window.low, window.high, strict=True) for pad in pads):
        raise Wordless("windows on padding alone")
    if rounds_up and any(map(_leaves, source.sizes[2:], shape, window.strides, window.low, window.high)):
        raise Wordless("a window that is cut off")
    counts = counts_padding and kind == "AVERAGE" and any((*window.low, *window.high))
    sizes = (*source.sizes[:2], *map(_covered, source.sizes[2:], shape, *window))
    return Term(f"pool {kind}", (source,), (tuple(shape), *window, counts), source.dtype, sizes)
