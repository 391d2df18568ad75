"""A parsed network as plain values: what TensorRT will compute, with nothing of TensorRT in it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from trtconv.core.frozen import frozen


@frozen
class ReadTensor:
    """A tensor of a parsed network.

    Args:
        index: Its number; layers refer to tensors by it.
        name: Its name. The parser gives the outputs of ONNX nodes the names that they have in the model.
        dtype: Type as NumPy would name it: "float32", "bfloat16", "int4".
        shape: Sizes, -1 where dynamic; None where not even the rank is known.
    """

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...] | None


@frozen
class ReadLayer:
    """A layer of a parsed network.

    Args:
        index: Its position in the network.
        name: Its name.
        kind: Name of its `LayerType`, for example "CONVOLUTION".
        inputs: ReadTensor numbers; None where an optional input is absent.
        outputs: ReadTensor numbers.
        values: Its attributes: enum values as their names, dimensions as tuples, weights as arrays, tensors as
            `ReadTensor`, loops and conditionals as numbers of their own.
        onnx_node: Name of the ONNX node that it came from; its own where the parser does not say.
        inside: What that node sits in, outermost first.
    """

    index: int
    name: str
    kind: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    values: MutableMapping[str, Any]
    onnx_node: str = ""
    inside: tuple[str, ...] = ()


@frozen
class PluginIdentity:
    """Which plugin a layer is.

    Args:
        name: Its name, as the creator has it.
        version: Its version.
        namespace: Its namespace; mostly empty.
    """

    name: str
    version: str = ""
    namespace: str = ""


@frozen
class PluginMeaning:
    """What a plugin of a network should compute; among the values of its layer under "meaning".

    Args:
        compute: Takes the inputs and the attributes, and returns the outputs.
        attributes: Those of the node that it came from.
    """

    compute: Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]
    attributes: Mapping[str, Any]


@frozen
class ReadNetwork:
    """A parsed network.

    Args:
        tensors: Every tensor, by its number.
        layers: Every layer, in the network's order, which is not always one in which they can run.
        inputs: ReadTensor numbers of the network's inputs.
        outputs: ReadTensor numbers of its outputs.
        keep_alive: What weights lie in; None where that is memory of their own.
    """

    tensors: tuple[ReadTensor, ...]
    layers: tuple[ReadLayer, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    keep_alive: Any = dataclasses.field(default=None, compare=False, repr=False)

    @functools.cached_property
    def named(self) -> Mapping[str, ReadTensor]:
        """The tensors by their names; of several that share one, the last."""
        return {tensor.name: tensor for tensor in self.tensors}


class NotProven(Exception):
    """A layer that is not run, because what it computes is not documented, or cannot be read.

    Args:
        reason: Why, in words that follow "not proven:".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Malformed(NotProven):
    """A layer does not fit what it is given, or what TensorRT inferred of it: as documented it computes nothing."""


class OutOfTime(NotProven):
    """There is no time left to run what is left."""
