"""Biases that take back what quantisers do to the mean of each channel.

Rounding and clipping move the mean of a layer's result by a little in every channel, and the layers behind add that up.
Biases stay in float, so the float network's mean is restored for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.sessions import Probe

_TURNS = 3
"""Each takes as it is what the layers in front do to a mean; behind it they are corrected themselves."""

Feeds = Mapping[str, NDArray[Any]]
Tell = Callable[[int, int], None]
Means = dict[str, NDArray[np.float64]]


def correct_biases(
    model: OnnxModel, result: OnnxModel, tensors: Sequence[str], samples: Sequence[Feeds], tell: Tell
) -> OnnxModel:
    """Returns a copy of a quantised model whose layers have the means of the float one.

    Args:
        model: The float model.
        result: The quantised model.
        tensors: Results of the layers that are quantised.
        samples: Inputs over which means are taken.
        tell: Hears how many turns are done, of how many.
    """
    copy = result.copy()
    if not tensors:
        return copy
    expected = _means(model, tensors, samples)
    for turn in range(1, _TURNS + 1):
        got = _means(copy, tensors, samples)
        for tensor in tensors:
            _add(copy, tensor, expected[tensor] - got[tensor])
        copy.touch()
        tell(turn, _TURNS)
    return copy


def _means(model: OnnxModel, tensors: Sequence[str], samples: Sequence[Feeds]) -> Means:
    """Returns tensor to the mean of each channel."""
    probe = Probe(model, tensors)
    sums: Means = {}
    counts: dict[str, int] = {}
    for feeds in samples:
        for name, values in probe.run(feeds).items():
            others = tuple(axis for axis in range(values.ndim) if axis != 1)
            sums[name] = sums.get(name, 0.0) + values.sum(axis=others, dtype=np.float64)
            counts[name] = counts.get(name, 0) + values.size // max(1, values.shape[1])
    return {name: total / max(1, counts[name]) for name, total in sums.items()}


def _add(model: OnnxModel, tensor: str, shift: NDArray[np.float64]) -> None:
    """Adds to the bias of the layer that makes a tensor; one that it shares, or lacks, becomes one of its own."""
    graph = model.proto.graph
    node = next(node for node in graph.node if tensor in node.output)
    name = node.input[2] if len(node.input) > 2 else ""
    bias = model.main.values(name) if name else np.zeros(shift.shape, np.float32)
    if bias is None:
        return
    values = (bias.astype(np.float64) + shift).astype(np.float32)
    own = next((each for each in graph.initializer if each.name == name), None)
    if own is not None and model.main.uses_of(name) == 1:
        own.CopyFrom(numpy_helper.from_array(values, name))
        return
    fresh = model.fresh_name(f"{tensor}.bias")
    graph.initializer.append(numpy_helper.from_array(values, fresh))
    del node.input[2:]
    node.input.append(fresh)
    model.touch()
