"""Which pieces are alike: the same nodes, layers, attributes and sizes, on weights that may differ.

That the weights of a network are those of its file is shown bit for bit by itself (`weights`), so that of pieces that
are alike one is run. Small constants, which are often limits and exponents, make pieces unlike; so does anything that
is not known to be a weight.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import BODIES, reads
from trtconv.runtimes.proof.cut import Piece
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork, ReadTensor

_SMALL = 64
"""Elements of constants that make pieces unlike."""


def key_of(network: ReadNetwork, model: OnnxModel, piece: Piece, schemes: Sequence[Mapping[str, Any]]) -> Hashable:
    """Returns what is the same for pieces that are alike.

    Args:
        network: The network.
        model: Its model.
        piece: The piece.
        schemes: Shapes of its sources.
    """
    names = {name: number for number, name in enumerate(piece.sources)}
    nodes = tuple(_nodes(model, piece, names))
    tensors: dict[int, int] = {}
    layers = tuple(_layers(network, piece, names, tensors))
    shapes = tuple(tuple(scheme[name] for name in piece.sources) for scheme in schemes)
    dtypes = tuple(model.main.dtype(name) for name in piece.sources)
    # Of nodes with several results each is a piece.
    return nodes, names.get(piece.target), layers, shapes, dtypes


def _nodes(model: OnnxModel, piece: Piece, names: dict[str, int]) -> Iterator[Hashable]:
    scope = model.main
    # In the order of the graph, each after what it reads.
    for index in piece.nodes:
        node = scope.columns.nodes[index]
        inner = any(attribute.type in BODIES for attribute in node.attribute)
        inputs = []
        for name in (*node.input, *(sorted(reads(node) - set(node.input)) if inner else ())):
            tensor = scope.initializer(name) if name else None
            if name and tensor is not None:
                inputs.append(_constant(tensor.SerializeToString, tuple(tensor.dims), tensor.data_type))
            else:
                inputs.append(names.setdefault(name, len(names)))
        attributes = tuple(
            (attribute.name, hashlib.sha256(attribute.SerializeToString()).digest())
            for attribute in sorted(node.attribute, key=lambda attribute: attribute.name)
        )
        outputs = tuple(names.setdefault(name, len(names)) for name in node.output)
        yield node.op_type, node.domain, tuple(inputs), attributes, outputs


def _constant(data: Callable[[], bytes], shape: tuple[int, ...], dtype: Hashable) -> Hashable:
    return (shape, dtype, hashlib.sha256(data()).digest() if math.prod(shape) <= _SMALL else b"")


def _layers(
    network: ReadNetwork, piece: Piece, names: Mapping[str, int], tensors: dict[int, int]
) -> Iterator[Hashable]:
    groups: dict[tuple[str, Any], int] = {}
    for index in piece.layers:
        layer = network.layers[index]
        values = tuple(
            (name, groups.setdefault((name, value), len(groups)) if name in ("loop", "conditional") else _value(value))
            for name, value in sorted(layer.values.items())
        )
        ends = tuple(
            None if number is None else _tensor(network.tensors[number], names, tensors)
            for number in (*layer.inputs, *layer.outputs)
        )
        yield layer.kind, len(layer.inputs), values, ends


def _tensor(tensor: ReadTensor, names: Mapping[str, int], tensors: dict[int, int]) -> Hashable:
    number = tensors.setdefault(tensor.index, len(tensors))
    return names.get(tensor.name, -1), number, tensor.dtype, tensor.shape


def _value(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return _constant(value.tobytes, value.shape, str(value.dtype))
    if isinstance(value, (int, float, str, bool, tuple, type(None))):
        return type(value).__name__, value
    # What is not plain is like nothing else.
    return id(value)
