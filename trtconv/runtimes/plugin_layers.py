"""Plugins of a parsed network, with what the model says of them."""

from __future__ import annotations

import dataclasses

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.foreign_nodes import meaning_of
from trtconv.runtimes.tensorrt.readback.records import PluginIdentity, ReadLayer, ReadNetwork


def with_meanings(network: ReadNetwork, model: OnnxModel) -> ReadNetwork:
    """Returns a network whose plugins know what their nodes mean.

    Args:
        network: As it was read back.
        model: The model as the parser was given it.

    Raises:
        InputError: A file of references does not run.
    """
    if not any(isinstance(layer.values.get("plugin"), PluginIdentity) for layer in network.layers):
        return network
    layers = tuple(_with_meaning(layer, network, model) for layer in network.layers)
    return dataclasses.replace(network, layers=layers)


def _with_meaning(layer: ReadLayer, network: ReadNetwork, model: OnnxModel) -> ReadLayer:
    plugin = layer.values.get("plugin")
    if not isinstance(plugin, PluginIdentity) or not layer.outputs:
        return layer
    meaning = meaning_of(model, network.tensors[layer.outputs[0]].name, plugin)
    return dataclasses.replace(layer, values={**layer.values, "meaning": meaning})
