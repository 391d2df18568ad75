"""The shapes of all tensors at one size of the inputs: by ONNX's inference, by the size lattice where it ends, by
TensorRT's parser, by a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from typing import Any

from numpy.typing import NDArray

from trtconv.graph.extract import shapes_with
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof import cost
from trtconv.runtimes.proof.feeds import InputKind, Shape, Source, make
from trtconv.runtimes.proof.lattice_shapes import shapes_by_lattice
from trtconv.runtimes.proof.roles import role_of
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import NotProven, ReadNetwork, ReadTensor

Shapes = Mapping[str, tuple[int | None, ...]]

_MOST_PRODUCTS = 2e9
"""What a run may multiply for its shapes alone."""
_SECONDS = 5.0


def shapes_of(
    network: ReadNetwork, model: OnnxModel, inputs: Mapping[str, Shape], names: Collection[str], megabytes: float
) -> Shapes:
    """Returns the shapes of tensors.

    Args:
        network: The network.
        model: The model as the parser was given it.
        inputs: Shapes of the inputs.
        names: The tensors that are asked about; others may be left out.
        megabytes: How much memory a run may take.
    """
    shapes = shapes_with(model, inputs)
    if not _lacking(shapes, names):
        return shapes
    shapes = _filled(shapes, shapes_by_lattice(model, inputs), names)
    if not _lacking(shapes, names):
        return shapes
    shapes = _filled(shapes, _fixed(network), names)
    if not _lacking(shapes, names) or cost.products(network, shapes) > _MOST_PRODUCTS:
        return shapes
    return _filled(shapes, _traced(network, model, inputs, megabytes), names)


def _lacking(shapes: Shapes, names: Collection[str]) -> list[str]:
    return [name for name in names if None in (shapes.get(name) or (None,)) and shapes.get(name) != ()]


def _filled(shapes: Shapes, others: Mapping[str, Shape], names: Collection[str]) -> Shapes:
    return {**shapes, **{name: others[name] for name in _lacking(shapes, names) if name in others}}


def _fixed(network: ReadNetwork) -> dict[str, Shape]:
    """Returns the shapes that the parser worked out. A wrong one comes to light where the tensor is made: the piece
    there returns another shape than the model's."""
    return {
        tensor.name: tensor.shape
        for tensor in network.tensors
        if tensor.shape is not None and min(tensor.shape, default=0) >= 0
    }


def _traced(
    network: ReadNetwork, model: OnnxModel, inputs: Mapping[str, Shape], megabytes: float
) -> dict[str, tuple[int, ...]]:
    """Runs the network, and returns the shapes that its tensors have."""
    shapes: dict[str, tuple[int, ...]] = {}

    def see(tensor: ReadTensor, value: NDArray[Any], computed: bool) -> NDArray[Any]:
        shapes[tensor.name] = value.shape
        return value

    sources = [
        Source(tensor.name, tensor.dtype, *role_of(model, tensor.name, inputs))
        for tensor in (network.tensors[number] for number in network.inputs)
        if tensor.name in inputs
    ]
    feeds = make(sources, inputs, InputKind.ORDINARY, (), 1.0)
    with contextlib.suppress(NotProven):
        Run(network, feeds, see=see, deadline=time.monotonic() + _SECONDS, megabytes=megabytes).outputs()
    return shapes
