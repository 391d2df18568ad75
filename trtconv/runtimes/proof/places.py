"""Indices that lie in what they choose from, and those of scatters that name each place once.

Of a place that is named twice ONNX leaves open which update stays: ONNX Runtime takes the last one, a GPU whichever
comes last there; two results that differ in that are both right.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from trtconv.graph.arrays import Array
from trtconv.graph.attributes import attribute
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.roles import indices_of

_SCATTERS = frozenset({"Scatter", "ScatterElements", "ScatterND"})
"""Whatever the domain: they are also plugins of TensorRT."""
_GATHERS = frozenset({"Gather", "GatherElements", "GatherND"})
_SAME_VALUES = frozenset({"Cast", "Identity"})
_SAME_ORDER = _SAME_VALUES | {"Reshape", "Unsqueeze", "Squeeze", "Flatten"}


def apart(model: OnnxModel, feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
    """Returns inputs of a model in which indices choose from what is there, and those of a scatter no place twice.

    Args:
        model: The model; only indices that are inputs of it are changed, where the sizes of what they choose from, or
            of what is written, are known.
        feeds: Input name to values.
        seed: The same seed makes the same indices.
    """
    result = {**feeds, **_in_range(model, feeds)}
    for name, nodes in _by_source(model, feeds).items():
        node, data = nodes[0], _least([_shape(model, scatter.input[0], feeds) for scatter in nodes])
        data = _within(data, model, name, feeds)
        if data is None or feeds[name].dtype.kind not in "iu":
            continue
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        values = feeds[name]
        shape = values.shape if node.input[1] == name else model.main.shape(node.input[1])
        indices = _slices(shape, data, values, random) if _is_nd(node) else _elements(node, data, values, random)
        if indices is not None:
            result[name] = indices.astype(values.dtype).reshape(values.shape)
    return result


def _in_range(model: OnnxModel, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Returns those inputs that are indices, or lengths, which lie outside of what they choose from, moved into it."""
    if not any(values.dtype.kind in "iu" for values in feeds.values()):
        return {}
    spans = indices_of(model, [{name: np.shape(values) for name, values in feeds.items()}])
    return {name: _into(feeds[name], span) for name, span in spans.items() if name in feeds}


def _into(values: Array, span: range) -> Array:
    """Returns integers of which each lies in a range of integers."""
    # Of more rows than the type counts to, those that it does.
    stop = min(span.stop, int(np.iinfo(values.dtype).max) + 1)
    wide = values.astype(np.int64)
    outside = (wide < span.start) | (wide >= stop)
    if not outside.any():
        return values
    return np.asarray(np.where(outside, span.start + (wide - span.start) % (stop - span.start), wide), values.dtype)


def _by_source(model: OnnxModel, feeds: Mapping[str, Array]) -> dict[str, list[onnx.NodeProto]]:
    """Returns inputs of a model to the scatters whose indices they are."""
    scatters: dict[str, list[onnx.NodeProto]] = {}
    for node in filter(_overwrites, model.main.columns.nodes):
        name = _source(model, node, feeds)
        if name is not None:
            scatters.setdefault(name, []).append(node)
    return scatters


def _shape(model: OnnxModel, name: str, feeds: Mapping[str, Array]) -> Sequence[int | None] | None:
    return np.shape(feeds[name]) if name in feeds else model.main.shape(name)


def _least(shapes: Sequence[Sequence[int | None] | None]) -> Sequence[int | None] | None:
    """Returns the sizes that indices of all these shapes may count to; None where one is not known."""
    present = [shape for shape in shapes if shape is not None]
    if len(present) < len(shapes):
        return None
    return [
        None if None in axis else min(size for size in axis if size is not None) for axis in zip(*present, strict=False)
    ]


def _within(
    data: Sequence[int | None] | None, model: OnnxModel, name: str, feeds: Mapping[str, Array]
) -> Sequence[int | None] | None:
    """Returns sizes that indices may count to where they gather from other tensors too; None where one is unknown."""
    for node in model.main.columns.nodes:
        if data is None or node.op_type not in _GATHERS or _source(model, node, feeds) != name:
            continue
        sizes = _counted(model, node, feeds)
        static = [size for size in sizes if size is not None]
        most = min(static, default=0)
        data = [size and min(size, most) for size in data] if sizes and len(static) == len(sizes) else None
    return data


def _counted(model: OnnxModel, node: onnx.NodeProto, feeds: Mapping[str, Array]) -> Sequence[int | None]:
    """Returns the sizes that the indices of a gathering node count in; none where they are not known."""
    data, indices = (_shape(model, name, feeds) for name in node.input[:2])
    if not data or not indices:
        return ()
    return data[: indices[-1]] if node.op_type == "GatherND" else [data[_axis(node, len(data))]]


def names_twice(node: onnx.NodeProto, data: Sequence[int], indices: Array) -> bool:
    """Whether a node overwrites a place of its data more than once."""
    if not _overwrites(node) or not indices.size:
        return False
    if _is_nd(node):
        sizes = np.asarray(data[: indices.shape[-1]])
        rows = indices.reshape(-1, indices.shape[-1])
    else:
        axis = _axis(node, len(data))
        rows = np.moveaxis(np.indices(indices.shape), 0, -1).copy()
        rows[..., axis] = indices
        rows, sizes = rows.reshape(-1, indices.ndim), np.asarray(data)
    counted = np.where(rows < 0, rows + sizes, rows)
    return len(np.unique(counted, axis=0)) < len(counted)


def _slices(
    shape: Sequence[int | None] | None, data: Sequence[int | None], values: Array, random: np.random.Generator
) -> Array | None:
    depth = shape[-1] if shape else None
    sizes = [size for size in data[:depth] if size is not None]
    if not depth or len(sizes) < depth or values.size % depth:
        return None
    places, count = math.prod(sizes), values.size // depth
    if count > places:
        return None
    flat: Array = random.choice(places, count, replace=False)
    indices: Array = np.array(np.unravel_index(flat, sizes)).T
    return indices


def _elements(
    node: onnx.NodeProto, data: Sequence[int | None], values: Array, random: np.random.Generator
) -> Array | None:
    if not values.ndim or len(data) != values.ndim:
        return None
    axis = _axis(node, values.ndim)
    size, count = data[axis], values.shape[axis]
    if size is None or count > size:
        return None
    others = (*values.shape[:axis], *values.shape[axis + 1 :])
    lines = random.permuted(np.broadcast_to(np.arange(size), (*others, size)), axis=-1)[..., :count]
    return np.moveaxis(lines, -1, axis)


def _source(model: OnnxModel, node: onnx.NodeProto, feeds: Mapping[str, Array]) -> str | None:
    """Returns the input of the model that a scatter's indices are, in the same order; None where they are computed."""
    name = str(node.input[1])
    handed = _SAME_ORDER if _is_nd(node) else _SAME_VALUES
    while name not in feeds:
        maker = model.main.producer(name)
        if maker is None or maker.op_type not in handed:
            return None
        name = str(maker.input[0])
    return name


def _overwrites(node: onnx.NodeProto) -> bool:
    replaces = attribute(node, "reduction", b"none") in (b"none", b"")
    return node.op_type in _SCATTERS and len(node.input) > 2 and replaces


def _is_nd(node: onnx.NodeProto) -> bool:
    return str(node.op_type) == "ScatterND"


def _axis(node: onnx.NodeProto, rank: int) -> int:
    return int(attribute(node, "axis", 0)) % max(rank, 1)
