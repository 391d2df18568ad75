"""Biases that take back what quantisers do to the mean of each channel.

Rounding and clipping move the mean of a layer's result by a little in every channel, and the layers behind add that up.
Biases stay in float, so the float network's mean is restored for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from trtconv.graph.arrays import Feeds
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.operators import Bias
from trtconv.precision.quantize.sessions import Probe

_TURNS = 3
"""Each takes as it is what the layers in front do to a mean; behind it they are corrected themselves."""

Tell = Callable[[int, int], None]


def correct_biases(
    model: OnnxModel, result: OnnxModel, biases: Sequence[Bias], samples: Sequence[Feeds], tell: Tell
) -> OnnxModel:
    """Returns a copy of a quantised model whose layers have the means of the float one.

    Args:
        model: The float model.
        result: The quantised model.
        biases: Those of the layers that are quantised, as the float model has them.
        samples: Inputs over which means are taken.
        tell: Hears how many turns are done, of how many.
    """
    copy = result.copy()
    if not biases:
        return copy
    axes = {bias.tensor: bias.axis for bias in biases}
    expected = Probe(model, tuple(axes)).channel_means(axes, samples)
    for turn in range(1, _TURNS + 1):
        actual = Probe(copy, tuple(axes)).channel_means(axes, samples)
        for bias in biases:
            _add(copy, bias, expected[bias.tensor] - actual[bias.tensor])
        copy.touch()
        tell(turn, _TURNS)
    return copy


def _add(model: OnnxModel, bias: Bias, shift: NDArray[np.float64]) -> None:
    """Adds to a bias; one that others share, or that there is none of, becomes one of its own."""
    graph = model.proto.graph
    node = next(node for node in graph.node if bias.tensor in node.output)
    name = node.input[bias.slot] if len(node.input) > bias.slot else ""
    before = model.main.values(name) if name else np.zeros(shift.shape, np.float32)
    if before is None:
        return
    values = (before.astype(np.float64) + shift.reshape(before.shape)).astype(before.dtype)
    own = next((initializer for initializer in graph.initializer if initializer.name == name), None)
    if own is not None and model.main.uses_of(name) == 1:
        own.CopyFrom(numpy_helper.from_array(values, name))
        return
    fresh = model.fresh_name(f"{bias.tensor}.bias")
    graph.initializer.append(numpy_helper.from_array(values, fresh))
    if len(node.input) > bias.slot:
        node.input[bias.slot] = fresh
    else:
        node.input.append(fresh)
    model.touch()
