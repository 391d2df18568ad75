"""A parsed network without its values: what a refit holds another model to."""

from __future__ import annotations

from trtconv.core.encode import Document
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen


@frozen
class NetworkLayer(Document):
    """A layer of a parsed network.

    Args:
        name: Its name, by which TensorRT finds its weights.
        kind: Its type, such as "CONVOLUTION".
        node: Name of the ONNX node that it came from.
        sha256: Of its attributes, and of types, sizes and numbers of its tensors; empty where they cannot be read.
    """

    name: str
    kind: str
    node: str
    sha256: str


@frozen
class NetworkWeight(Document):
    """Weights of a layer.

    Args:
        layer: The layer's position in the network.
        role: What TensorRT calls these of its weights: "KERNEL", "BIAS", "CONSTANT", "SCALE" or "SHIFT".
        dtype: Their type, as NumPy calls it.
        count: How many elements there are.
        sha256: Of the values; empty where they cannot be read.
    """

    layer: int
    role: str
    dtype: str
    count: int
    sha256: str


@frozen
class NetworkRecord(Document):
    """A parsed network.

    Args:
        inputs: Names of its inputs.
        outputs: Names of its outputs.
        layers: Its layers, in the network's order.
        weights: The weights of all layers, in the same order.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layers: tuple[NetworkLayer, ...]
    weights: tuple[NetworkWeight, ...]

    def __post_init__(self) -> None:
        places = [(weight.layer, weight.role) for weight in self.weights]
        if len(set(places)) != len(places) or not all(0 <= layer < len(self.layers) for layer, _ in places):
            raise InputError("its weights are not those of its layers", "Build the engine again.")
