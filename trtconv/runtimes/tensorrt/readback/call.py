"""What a kind of layer is given to compute with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.read import UnreadWeights
from trtconv.runtimes.tensorrt.readback.records import NotProven, ReadLayer, ReadTensor


@frozen
class Call:
    """One layer about to be run.

    Args:
        layer: The layer.
        inputs: Values of its inputs; None where an optional one is absent.
        outputs: Its output tensors: the type of each, and its shape as far as TensorRT knows it.
        sources: Its input tensors, likewise.
    """

    layer: ReadLayer
    inputs: tuple[Array | None, ...]
    outputs: tuple[ReadTensor, ...]
    sources: tuple[ReadTensor | None, ...]

    def __getitem__(self, name: str) -> Any:
        return self.layer.values[name]

    def get(self, name: str) -> Any:
        """Returns an attribute that not every version has, None where it is not there."""
        return self.layer.values.get(name)

    def input(self, index: int) -> Array:
        """Returns the value of an input that must be there."""
        value = self.optional(index)
        if value is None:
            raise NotProven(f"it has no input {index}")
        return value

    def optional(self, index: int) -> Array | None:
        """Returns the value of an input, None where it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def weights(self, name: str) -> Array:
        """Returns weights, empty where there are none."""
        value = self[name]
        if isinstance(value, UnreadWeights):
            raise NotProven(value.reason)
        return np.empty(0, np.float32) if value is None else np.asarray(value)

    def is_static(self, axis: int) -> bool:
        """Returns whether the size of the first input's axis is known when the network is built."""
        source = self.sources[0]
        return source is not None and source.shape is not None and source.shape[axis] >= 0

    def ints(self, index: int) -> tuple[int, ...] | None:
        """Returns the values of an input that holds sizes, None where it is absent."""
        value = self.optional(index)
        return None if value is None else tuple(int(size) for size in value.reshape(-1))


Kernel = Callable[[Call], Sequence[Array]]
"""Computes the outputs of one kind of layer; types and shapes are settled by the caller."""


def axes_of(mask: int) -> tuple[int, ...]:
    """Returns the axes of a bit mask."""
    return tuple(axis for axis in range(int(mask).bit_length()) if mask >> axis & 1)
