"""A parsed network in words, so that those of two versions of TensorRT can be compared where neither is at hand."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from trtconv.core.documents.upgrade import ParsedLayer
from trtconv.runtimes.tensorrt.readback.read import UnreadWeights
from trtconv.runtimes.tensorrt.readback.records import PluginIdentity, ReadLayer, ReadNetwork, ReadTensor

_SHORT = 16
"""Digits of a checksum, and elements of an array that are written out."""


def parsed_layers(network: ReadNetwork, nodes: Collection[str]) -> tuple[ParsedLayer, ...]:
    """Describes the layers of a network, in its order.

    Args:
        network: As it was read back.
        nodes: Names of the model's nodes; what comes from none of them was added by the parser.
    """
    return tuple(_described(layer, network, nodes) for layer in network.layers)


def _described(layer: ReadLayer, network: ReadNetwork, nodes: Collection[str]) -> ParsedLayer:
    tensors = network.tensors
    ends = {
        "inputs": [None if number is None else tensors[number] for number in layer.inputs],
        "outputs": [tensors[number] for number in layer.outputs],
    }
    attributes = {name: _text(value) for name, value in {**layer.values, **ends}.items()}
    return ParsedLayer(layer.name, layer.kind, layer.onnx_node if layer.onnx_node in nodes else "", attributes)


def _text(value: Any) -> str:
    """Returns a value in words which say all of it, and nothing of how the network numbers its tensors."""
    if isinstance(value, ReadTensor):
        return f"{value.dtype} {_text(value.shape)}"
    if isinstance(value, np.ndarray):
        if value.size <= _SHORT:
            return f"{value.dtype} {value.tolist()}"
        digest = hashlib.sha256(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data).hexdigest()
        return f"{value.dtype} {list(value.shape)} {digest[:_SHORT]}"
    if isinstance(value, UnreadWeights):
        return value.reason
    if isinstance(value, PluginIdentity):
        return " ".join(filter(None, (value.namespace, value.name, value.version)))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_text(item)}" for name, item in sorted(value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value)
