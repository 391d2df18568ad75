"""What a run of a whole network costs, estimated before it is begun."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork

Shapes = Mapping[str, Sequence[int | None]]

_OF_AN_ELEMENT = 64.0
"""How many numbers are multiplied in a product of matrices while one element is written and read again."""


def products(network: ReadNetwork, shapes: Shapes) -> float:
    """Returns how many numbers a run could multiply in its time; layers whose sizes are not known count nothing.

    Args:
        network: The network.
        shapes: Of its tensors, as far as they are known.
    """
    return sum(layer_products(network, layer, shapes) + _elements(network, layer, shapes) for layer in network.layers)


def _elements(network: ReadNetwork, layer: ReadLayer, shapes: Shapes) -> float:
    results = [] if layer.kind == "CONSTANT" else [_shape(network, number, shapes) for number in layer.outputs]
    return _OF_AN_ELEMENT * sum(math.prod(shape) for shape in results if shape)


def layer_products(network: ReadNetwork, layer: ReadLayer, shapes: Shapes) -> float:
    """Returns how many numbers a convolution or a product of matrices multiplies; 0 of other layers, and where sizes
    are not known."""
    if layer.kind in ("CONVOLUTION", "DECONVOLUTION"):
        maps = layer.values["num_output_maps"]
        source = _shape(network, layer.inputs[0], shapes)
        (number,) = layer.outputs
        result = _shape(network, number, shapes)
        channels = source[1] if source else 1
        window = math.prod(layer.values["kernel_size_nd"])
        per_group = channels * maps * window / max(1, layer.values["num_groups"])
        places = math.prod(result[2:]) * result[0] if layer.kind == "CONVOLUTION" and result else 0
        places = math.prod(source[2:]) * source[0] if layer.kind == "DECONVOLUTION" and source else places
        return float(places * per_group)
    if layer.kind == "MATRIX_MULTIPLY":
        source = _shape(network, layer.inputs[0], shapes)
        common = source[-2 if layer.values["op0"] == "TRANSPOSE" else -1] if len(source) > 1 else 1
        (number,) = layer.outputs
        return float(math.prod(_shape(network, number, shapes)) * common)
    return 0.0


def _shape(network: ReadNetwork, number: int | None, shapes: Shapes) -> tuple[int, ...]:
    """Returns the shape of a tensor; an empty one where it is not known."""
    if number is None:
        return ()
    tensor = network.tensors[number]
    if tensor.shape is not None and all(size >= 0 for size in tensor.shape):
        return tensor.shape
    shape = shapes.get(tensor.name)
    return tuple(shape) if shape is not None and all(shape) else ()  # type: ignore[arg-type]
