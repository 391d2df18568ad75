"""How many multiply-adds each layer of a network takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from numpy.typing import NDArray

from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.layers import WeightedLayer
from trtconv.precision.quantize.operators import Shape, multiply_adds
from trtconv.precision.quantize.sessions import Probe


def work_of(
    model: OnnxModel, layers: Sequence[WeightedLayer], samples: Sequence[Mapping[str, NDArray[Any]]]
) -> dict[int, int]:
    """Returns position of a layer to its multiply-adds.

    Args:
        model: The float model.
        layers: Its layers with weights.
        samples: They are counted at the sizes of the first; without one the sizes have to be fixed in the model.

    Returns:
        Nothing where the sizes of a layer are not known.
    """
    names = {name: None for layer in layers for name in (*layer.node.input[:3], *layer.node.output[:1]) if name}
    shapes = {name: shape for name in names if (shape := _fixed(model, name)) is not None}
    missing = [name for name in names if name not in shapes]
    if missing and not len(samples):
        return {}
    if missing:
        shapes |= _measured(model, missing, samples[0])
    return {layer.index: multiply_adds(layer.node, shapes) for layer in layers}


def _fixed(model: OnnxModel, name: str) -> Shape | None:
    shape = model.main.shape(name)
    return None if shape is None or None in shape else tuple(size or 0 for size in shape)


def _measured(model: OnnxModel, names: Sequence[str], feeds: Mapping[str, NDArray[Any]]) -> dict[str, Shape]:
    """Runs a sample and returns the shapes of tensors, without their values."""
    copy = model.copy()
    results = {name: copy.fresh_name(f"{name}.shape") for name in names}
    copy.proto.graph.node.extend(
        onnx.helper.make_node("Shape", [name], [result], copy.fresh_name(result)) for name, result in results.items()
    )
    copy.touch()
    values = Probe(copy, tuple(results.values())).run(feeds)
    return {name: tuple(int(size) for size in values[result]) for name, result in results.items()}
