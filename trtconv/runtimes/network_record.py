"""A parsed network as a record without values, and the first difference between two of them.

Layers are compared in order, and tensors by their number: another export may have other names inside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.documents.network import NetworkLayer, NetworkRecord, NetworkWeight
from trtconv.core.frozen import frozen
from trtconv.runtimes.tensorrt.readback.read import UnreadWeights
from trtconv.runtimes.tensorrt.readback.records import PluginMeaning, ReadLayer, ReadNetwork, ReadTensor
from trtconv.runtimes.tensorrt.readback.surface import SURFACES

ROLES = {"kernel": "KERNEL", "bias": "BIAS", "weights": "CONSTANT", "scale": "SCALE", "shift": "SHIFT"}
"""Attribute of a layer to what TensorRT's refitter calls the weights in it. The power of a scale cannot be refitted."""


@frozen
class LayerWeight:
    """Weights of a layer that an engine can be given anew.

    Args:
        layer: Position of the layer.
        attribute: The attribute that holds them.
        values: The values, over the parser's own memory; `UnreadWeights` where they cannot be read.
    """

    layer: int
    attribute: str
    values: NDArray[Any] | UnreadWeights

    @property
    def role(self) -> str:
        """What TensorRT's refitter calls them."""
        return ROLES[self.attribute]


@frozen
class GraphDifference:
    """The first place in which two networks differ.

    Args:
        before: The layer of the first network; None where it has none there, or layers are not what differs.
        after: The same of the second.
        what: What differs, in words.
    """

    before: NetworkLayer | None
    after: NetworkLayer | None
    what: str


def layer_weights(network: ReadNetwork) -> Iterator[LayerWeight]:
    """Yields all weights that a refitter knows by layer and role, in the network's order; none that is empty."""
    for layer in network.layers:
        for attribute in ROLES:
            values = layer.values.get(attribute)
            if isinstance(values, UnreadWeights) or (isinstance(values, np.ndarray) and values.size):
                yield LayerWeight(layer.index, attribute, values)


def record(network: ReadNetwork) -> NetworkRecord:
    """Returns the record of a network; its plugins have to know what their nodes mean (`with_meanings`)."""
    names = [tensor.name for tensor in network.tensors]
    return NetworkRecord(
        tuple(names[number] for number in network.inputs),
        tuple(names[number] for number in network.outputs),
        tuple(
            NetworkLayer(layer.name, layer.kind, layer.onnx_node, _structure(layer, network))
            for layer in network.layers
        ),
        tuple(map(_weight, layer_weights(network))),
    )


def first_difference(before: NetworkRecord, after: NetworkRecord) -> GraphDifference | None:
    """Returns where two networks are not the same but for the values of their weights; None where they are.

    Args:
        before: The network of the engine.
        after: The network that is to take its place.
    """
    for what, old, new in (("input", before.inputs, after.inputs), ("output", before.outputs, after.outputs)):
        if old != new:
            return GraphDifference(None, None, f"its {what}s are {_listed(new)}, and the engine has {_listed(old)}")
    for one, other in zip(before.layers, after.layers, strict=False):
        if one.kind != other.kind:
            return GraphDifference(one, other, "another operation")
        if not one.sha256 or not other.sha256:
            return GraphDifference(one, other, f"attributes of a {one.kind} cannot be read and compared")
        if one.sha256 != other.sha256:
            return GraphDifference(one, other, "other attributes, inputs or sizes")
    shared = min(len(before.layers), len(after.layers))
    if len(before.layers) != len(after.layers):
        old_rest, new_rest = before.layers[shared:], after.layers[shared:]
        what = "a further layer" if new_rest else "a layer less"
        return GraphDifference(next(iter(old_rest), None), next(iter(new_rest), None), what)
    return _weights_difference(before, after)


def _weights_difference(before: NetworkRecord, after: NetworkRecord) -> GraphDifference | None:
    old, new = _by_place(before), _by_place(after)
    for layer, role in sorted({*old, *new}):
        pair = old.get((layer, role)), new.get((layer, role))
        shapes = ["none" if weights is None else f"{weights.count} of {weights.dtype}" for weights in pair]
        if shapes[0] != shapes[1]:
            what = f"{shapes[1]} as its {role}, where the engine has {shapes[0]}"
            return GraphDifference(before.layers[layer], after.layers[layer], what)
    return None


def _by_place(network: NetworkRecord) -> dict[tuple[int, str], NetworkWeight]:
    return {(weight.layer, weight.role): weight for weight in network.weights}


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


def _weight(weight: LayerWeight) -> NetworkWeight:
    if isinstance(weight.values, UnreadWeights):
        return NetworkWeight(weight.layer, weight.role, "", 0, "")
    values = weight.values
    return NetworkWeight(weight.layer, weight.role, str(values.dtype), values.size, _digest_of(values))


def _digest_of(values: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data).hexdigest()


def _structure(layer: ReadLayer, network: ReadNetwork) -> str:
    """Returns a checksum of all of a layer but its name and its weights; nothing where its kind cannot be read."""
    if layer.kind not in SURFACES or ("plugin" in layer.values and layer.values.get("meaning") is None):
        return ""
    values = {name: _plain(value) for name, value in layer.values.items() if name not in ROLES}
    ends = [
        [None if number is None else _tensor(network.tensors[number]) for number in numbers]
        for numbers in (layer.inputs, layer.outputs)
    ]
    return hashlib.sha256(repr((layer.kind, sorted(values.items()), ends)).encode()).hexdigest()


def _tensor(tensor: ReadTensor) -> tuple[object, ...]:
    return tensor.index, tensor.dtype, tensor.shape


def _plain(value: Any) -> object:
    """Returns a layer's attribute as a value whose `repr` says all of it, and nothing of where it lies in memory."""
    if isinstance(value, ReadTensor):
        return _tensor(value)
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, _digest_of(value)
    if isinstance(value, PluginMeaning):
        return _plain(value.attributes)
    if isinstance(value, UnreadWeights):
        return value.reason
    if isinstance(value, Mapping):
        return sorted((name, _plain(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
