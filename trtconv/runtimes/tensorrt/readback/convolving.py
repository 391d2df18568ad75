"""Convolutions as products of matrices, in NumPy alone: ONNX Runtime, which runs the model, has no part in them.

A convolution with strides is one without over each *phase* of its input, the places whose positions leave the same
remainders. Without strides, what lies under one element of the window is a slice of the flat input, shifted by as much
as the element lies from the first: rows are as long as the input's, and what the last places of each row hold is
dropped in the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from trtconv.graph.arrays import Array

_COLUMNS = 1 << 20
"""Numbers that are laid out at once, each as often as windows hold it."""
_FEWEST = 256
"""Places at a time: products of fewer take longer than they should."""

Sizes = Sequence[int]


def convolve(values: Array, kernel: Array, strides: Sizes, dilations: Sizes, groups: int) -> Array:
    """Returns a convolution in float32, without pads.

    Args:
        values: [batch, channels, *sizes].
        kernel: [outputs, channels / groups, *window].
        strides: How far the window is moved, for each size.
        dilations: How far its elements are from one another.
        groups: Into which both kinds of channels are divided.

    Returns:
        [batch, outputs, *places of the window].

    Raises:
        ValueError: They do not fit together.
    """
    window, outputs, (batch, channels, *sizes) = kernel.shape[2:], kernel.shape[0], values.shape
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    counts = [(size - r) // s + 1 for size, r, s in zip(sizes, reach, strides, strict=True)]
    if min(counts, default=1) <= 0:
        raise ValueError("its window is larger than what it is moved over")
    phases, grid = _phases(values, strides)
    flat = phases.reshape(math.prod(strides), batch, groups, channels // groups, math.prod(grid))
    row = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
    taps = [
        (_place([p % s for p, s in zip(at, strides, strict=True)], strides), _shift(at, strides, row))
        for at in itertools.product(*map(range, [0] * len(reach), reach, dilations))
    ]
    weights = kernel.reshape(groups, outputs // groups, channels // groups * len(taps))
    length = sum((count - 1) * step for count, step in zip(counts, row, strict=True)) + 1
    result = np.empty((batch, groups, outputs // groups, counts[0] * row[0]), np.float32)
    block = max(_FEWEST, _COLUMNS // max(1, batch * channels * len(taps)))
    for start in range(0, length, block):
        stop = min(start + block, length)
        columns = np.stack([flat[phase][..., first + start : first + stop] for phase, first in taps], 3)
        np.matmul(weights, columns.reshape(batch, *weights.shape[::2], stop - start), out=result[..., start:stop])
    shaped = result.reshape(batch, outputs, counts[0], *grid[1:])
    return np.asarray(shaped[(slice(None),) * 2 + tuple(map(slice, counts))])


def _phases(values: Array, strides: Sizes) -> tuple[Array, list[int]]:
    """Returns the phases, [*strides, batch, channels, *grid], and the sizes of each of them."""
    sizes, rank = values.shape[2:], len(strides)
    grid = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
    if max(strides) == 1:
        return np.ascontiguousarray(values, np.float32)[(None,) * rank], grid
    beyond = [(0, g * s - size) for g, s, size in zip(grid, strides, sizes, strict=True)]
    split = np.pad(values, [(0, 0), (0, 0), *beyond]).reshape(
        *values.shape[:2], *(n for pair in zip(grid, strides, strict=True) for n in pair)
    )
    axes = (*range(3, 3 + 2 * rank, 2), 0, 1, *range(2, 2 + 2 * rank, 2))
    return np.ascontiguousarray(split.transpose(axes), np.float32), grid


def _place(digits: Sizes, bases: Sizes) -> int:
    """Returns the number that has these digits, the first the highest, each below its base."""
    number = 0
    for digit, base in zip(digits, bases, strict=True):
        number = number * base + digit
    return number


def _shift(at: Sizes, strides: Sizes, row: Sizes) -> int:
    return sum(position // stride * step for position, stride, step in zip(at, strides, row, strict=True))


def spread(values: Array, kernel: Array, strides: Sizes, dilations: Sizes, groups: int) -> Array:
    """Returns the whole transposed convolution in float32: each value adds its window where it lies.

    Args:
        values: [batch, channels, *sizes].
        kernel: [channels, outputs / groups, *window].
        strides: How far the windows of neighbours lie from one another.
        dilations: How far the elements of a window do.
        groups: Into which both kinds of channels are divided.

    Returns:
        [batch, outputs, *sizes], of which each is `stride * (size - 1) + dilation * (window - 1) + 1`.

    Raises:
        ValueError: They do not fit together.
    """
    (batch, channels, *sizes), (*_, outputs), window = values.shape, kernel.shape[:2], kernel.shape[2:]
    full = [s * (n - 1) + d * (k - 1) + 1 for s, n, d, k in zip(strides, sizes, dilations, window, strict=True)]
    result = np.zeros((batch, groups, outputs, *full), np.float32)
    flat = np.ascontiguousarray(values, np.float32).reshape(batch, groups, channels // groups, -1)
    # One matrix lies after the other, as products of matrices want them.
    split = kernel.reshape(groups, channels // groups, outputs, math.prod(window))
    weights = np.ascontiguousarray(split.transpose(3, 0, 2, 1), np.float32)
    whole = (slice(None),) * 3
    for number, at in enumerate(np.ndindex(*window)):
        places = [
            slice(d * p, d * p + s * (n - 1) + 1, s) for d, p, s, n in zip(dilations, at, strides, sizes, strict=True)
        ]
        terms = weights[number] @ flat
        result[whole + tuple(places)] += terms.reshape(batch, groups, outputs, *sizes)
    return result.reshape(batch, groups * outputs, *full)
