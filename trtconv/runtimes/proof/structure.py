"""Which pieces are alike: the same nodes, layers, attributes and sizes, on weights that may differ.

That the weights of a network are those of its file is shown bit for bit by itself (`weights`), so that of pieces that
are alike one is run. Small constants, which are often limits and exponents, make pieces unlike; so does anything that
is not known to be a weight, and weights that would not show what others do: zeros, or a kernel that is its own mirror.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import reads
from trtconv.runtimes.proof.cut import Piece
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork, ReadTensor

_SMALL = 64
"""Elements of constants that make pieces unlike."""
_NEAR = 1e-5
"""How near, over the largest, two sums in float32 are that may be of the same numbers."""
T = TypeVar("T")


class Alike(Generic[T]):
    """Finds for each piece the first that shows what it computes.

    Attributes:
        firsts: What was given with those, in their order.
    """

    def __init__(self, network: ReadNetwork, model: OnnxModel) -> None:
        self.firsts: list[T] = []
        self._network = network
        self._model = model
        self._lone: dict[Hashable, tuple[Piece, T] | None] = {}
        self._items: dict[Hashable, T] = {}

    def first(self, piece: Piece, schemes: Sequence[Mapping[str, Any]], item: T) -> T:
        """Returns what was given with the first piece that is alike; `item`, where this one is that.

        Args:
            piece: The piece.
            schemes: Shapes of its sources.
            item: What stands for it.
        """
        key = key_of(self._network, self._model, piece, schemes)
        if key not in self._lone:
            # What its weights are like is asked where there is a second.
            self._lone[key], first = (piece, item), item
        else:
            lone, self._lone[key] = self._lone[key], None
            if lone is not None:
                self._items[key, _likeness(self._model, lone[0])] = lone[1]
            first = self._items.setdefault((key, _likeness(self._model, piece)), item)
        self.firsts += [item] if first is item else []
        return first


def _likeness(model: OnnxModel, piece: Piece) -> Hashable:
    """Returns what must be the same of the large constants of pieces that are alike: those that may hide something."""
    scope = model.main
    read = (name for index in piece.nodes for name in reads(scope.columns.nodes[index]))
    tensors = (tensor for name in dict.fromkeys(read) if (tensor := scope.initializer(name)) is not None)
    return tuple(_hidden(model, tensor) for tensor in tensors if math.prod(tensor.dims) > _SMALL)


def _hidden(model: OnnxModel, tensor: onnx.TensorProto) -> bytes:
    values = model.array(tensor)
    return b"" if tells(values) else hashlib.sha256(np.ascontiguousarray(values).tobytes()).digest()


def _has_twins(values: NDArray[Any], axis: int, sums: NDArray[Any]) -> bool:
    """Whether two slices along an axis are equal, as those may be whose weighted sums nearly are."""
    order = np.argsort(sums)
    near = np.flatnonzero(np.diff(sums[order]) <= _NEAR * np.abs(sums).max())
    return any(np.array_equal(*(values.take(order[place], axis) for place in (at, at + 1))) for at in near)


@np.errstate(over="ignore", invalid="ignore")
def tells(values: NDArray[Any]) -> bool:
    """Whether an array shows how its elements are used: no two slices along an axis are equal, none is zero, and to
    exchange two axes makes another one."""
    if values.dtype.kind in "OUSb" or not values.size:
        return False
    numbers = np.asarray(values, np.float32)
    for axis, (size, sums) in enumerate(zip(numbers.shape, _weighted_sums(numbers), strict=True)):
        if not sums.all() or not np.isfinite(sums).all() or _has_twins(numbers, axis, sums):
            return False
        for other in range(axis):
            if numbers.shape[other] == size > 1 and _is_mirrored(numbers, axis, other):
                return False
    return True


def _weighted_sums(numbers: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Yields for each axis the sums of its slices, whose elements count by their places on the other axes."""
    random = np.random.default_rng(0)
    weights = [np.asarray(random.uniform(1, 2, (size,)), np.float32) for size in numbers.shape]
    left = numbers
    for axis, size in enumerate(numbers.shape):
        rows = left.reshape(size, -1)
        yield rows @ functools.reduce(np.multiply.outer, weights[axis + 1 :], np.ones(1, np.float32)).reshape(-1)
        left = weights[axis] @ rows


def _is_mirrored(values: NDArray[Any], axis: int, other: int) -> bool:
    """Whether to exchange two axes changes nothing; most arrays show it in their first lines."""
    exchanged = values.swapaxes(axis, other)
    first = (0,) * (values.ndim - 1)
    lines = (np.moveaxis(array, axis, -1)[first] for array in (values, exchanged))
    return np.array_equal(*lines) and np.array_equal(values, exchanged)


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
        inputs = []
        for name in (*node.input, *sorted(reads(node) - set(node.input))):
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
    return names.get(tensor.name), number, tensor.dtype, tensor.shape


def _value(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return _constant(value.tobytes, value.shape, str(value.dtype))
    if isinstance(value, (int, float, str, bool, tuple, type(None))):
        return type(value).__name__, value
    # What is not plain is like nothing else.
    return id(value)
