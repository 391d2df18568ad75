"""Values in place of a model's own: random ones of about the same statistics."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.external_data_helper import uses_external_data

from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import all_nodes, tensors

_STRUCTURE = (TensorProto.INT64, TensorProto.BOOL)
_FEW = 16
"""So many integers are taken for structure: shapes, axes, pads. Lists of more floats are taken for weights."""
_HALF_MANTISSA = 1e-3
_MOST_SIZE = 1 << 16
"""Integers beyond it are no sizes or axes, but for those that mean an end."""
_ENDS = tuple(int(number) for kind in (np.int32, np.int64) for number in (np.iinfo(kind).min, np.iinfo(kind).max))


class Likeness(enum.Enum):
    """How much of a constant's own values there is in what stands for it."""

    STATISTICS = "random, of about the same mean, deviation and range"
    PATTERN = "random, with zeros, signs and infinities in the same places"
    KEPT = "as it was"
    RENAMED = "other texts"


_UNCHANGED = (Likeness.KEPT, Likeness.RENAMED)


class Constant:
    """A constant of a model whose values can be replaced.

    Args:
        name: What it is called.
        holder: The tensor, or the attribute of numbers, that has the values.
        is_table: Whether it is one of more integers than an operator has sizes.
    """

    def __init__(self, name: str, holder: TensorProto | AttributeProto, *, is_table: bool = False) -> None:
        self.name = name
        self._holder = holder
        self._is_table = is_table

    @property
    def values(self) -> NDArray[Any]:
        """Its values."""
        holder = self._holder
        if isinstance(holder, TensorProto):
            values: NDArray[Any] = numpy_helper.to_array(holder)
            return values
        value = onnx.helper.get_attribute_value(holder)
        numbers = list(value) if _is_list(holder) else [value]
        return np.asarray(numbers, np.float32 if _is_float(holder) else np.int64)

    @property
    def dtype(self) -> str:
        """Name of its type, as numpy has it."""
        return str(self.values.dtype)

    @property
    def is_structure(self) -> bool:
        """Whether its values are of the architecture, as attributes are: a shape, axes, pads; texts, too."""
        holder = self._holder
        if isinstance(holder, TensorProto):
            if holder.data_type == TensorProto.STRING:
                return True
            if math.prod(holder.dims) > _FEW or holder.data_type not in _STRUCTURE or self.is_external:
                return False
        elif _is_float(holder) or len(holder.ints) > _FEW:
            return False
        return not self._is_table and _are_sizes(self.values)

    @property
    def least(self) -> Likeness:
        """What of its own values is left at least: those that are structure stay, and texts have other names."""
        if not self.is_structure:
            return Likeness.STATISTICS
        return Likeness.KEPT if self.values.dtype.kind in "biu" else Likeness.RENAMED

    @property
    def is_external(self) -> bool:
        """Whether its values are in another file, so that they cannot be had from here."""
        return isinstance(self._holder, TensorProto) and uses_external_data(self._holder)

    @property
    def may_stay(self) -> bool:
        """Whether its values are few and plain, such as 2.0 or 0.125, so that nobody can have trained them."""
        values = self.values
        if values.size > _FEW or values.dtype.kind in "biu":
            return values.size <= _FEW and _are_sizes(values)
        wide = values.astype(np.float64)
        rounded = np.array([float(f"{value:.2g}") if np.isfinite(value) else value for value in wide.ravel()])
        return bool(np.allclose(rounded, wide.ravel(), rtol=1e-6, atol=0, equal_nan=True))

    def put(self, values: NDArray[Any]) -> None:
        """Replaces its values, which may have another shape."""
        holder = self._holder
        if isinstance(holder, TensorProto):
            holder.CopyFrom(numpy_helper.from_array(np.asarray(values, order="C"), holder.name))
        elif holder.type == AttributeProto.INT:
            holder.i = int(values.ravel()[0])
        elif holder.type == AttributeProto.FLOAT:
            holder.f = float(values.ravel()[0])
        else:
            numbers = holder.floats if _is_float(holder) else holder.ints
            del numbers[:]
            numbers.extend(values.ravel().tolist())


def constants(proto: onnx.ModelProto) -> Iterator[Constant]:
    """Yields the constants of a model: weights, those of its bodies and functions, long lists of numbers."""
    nodes = list(all_nodes(proto.graph.node))
    nodes += [node for function in proto.functions for node in all_nodes(function.node)]
    graphs = [
        proto.graph,
        *(body for node in nodes for attribute in node.attribute for body in (attribute.g, *attribute.graphs)),
    ]
    for graph in graphs:
        yield from (Constant(tensor.name, tensor) for tensor in graph.initializer)
        yield from (Constant(sparse.values.name, sparse.values) for sparse in graph.sparse_initializer)
    for node in nodes:
        name = next(iter(node.output), "")
        yield from (Constant(tensor.name or name, tensor) for tensor in tensors(node.attribute))
        own = node.domain not in ONNX_DOMAINS
        is_table = (
            own
            and sum(len(attribute.ints) + (attribute.type == AttributeProto.INT) for attribute in node.attribute) > _FEW
        )
        for attribute in node.attribute:
            if _holds_weights(node, attribute):
                yield Constant(f"{name}:{attribute.name}", attribute, is_table=is_table)


def _holds_weights(node: onnx.NodeProto, attribute: AttributeProto) -> bool:
    """Whether numbers of an attribute may be trained, as those of trees, of Constants and of foreign operators are."""
    if node.domain not in ONNX_DOMAINS:
        return attribute.type in _NUMBERS
    if attribute.type == AttributeProto.FLOAT:
        return bool(node.op_type == "Constant")
    return _is_list(attribute) and (len(attribute.floats) > 0 or len(attribute.ints) > _FEW)


def _are_sizes(values: NDArray[Any]) -> bool:
    """Whether integers may be sizes, axes, or ends of them."""
    return all(abs(int(value)) <= _MOST_SIZE or int(value) in _ENDS for value in values.ravel())


_FLOATS = (AttributeProto.FLOATS, AttributeProto.FLOAT)
_NUMBERS = (*_FLOATS, AttributeProto.INTS, AttributeProto.INT)


def _is_list(attribute: AttributeProto) -> bool:
    return attribute.type in (AttributeProto.FLOATS, AttributeProto.INTS)


def _is_float(attribute: AttributeProto) -> bool:
    return attribute.type in _FLOATS


def stand_in(values: NDArray[Any], likeness: Likeness, seed: int) -> NDArray[Any]:
    """Returns values in place of others, of the same shape and type.

    Args:
        values: The model's own.
        likeness: What they have in common.
        seed: Of the random numbers.
    """
    if not values.size or values.dtype.kind in "OSU":
        return values
    random = np.random.default_rng(seed)
    if values.dtype.kind == "b":
        return random.random(values.shape) < _rounded(float(values.mean()))
    wide = values.real.astype(np.float64)
    result = _drawn(wide, random) if likeness is Likeness.STATISTICS else _of_pattern(wide, random)
    if values.dtype.kind in "iu":
        result = np.rint(result)
    with np.errstate(over="ignore"):
        return result.astype(values.dtype)


def _drawn(wide: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Draws finite values of about the same statistics; the smallest and the largest of the old are not among them."""
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        finite = np.ones(1)
    low, high = float(finite.min()), float(finite.max())
    if low == high:
        # Half a per cent and more away from the old value, and of the same sign.
        return low * random.uniform(0.75, 0.995, wide.shape)
    mean, deviation = _rounded(float(finite.mean())), _rounded(float(finite.std()))
    numbers = random.normal(mean, deviation, wide.shape)
    inside = random.uniform(low + (high - low) * _HALF_MANTISSA, high - (high - low) * _HALF_MANTISSA, wide.shape)
    return np.where((numbers > low) & (numbers < high), numbers, inside)


def _of_pattern(wide: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Draws positive values for positive ones, negative ones likewise; all alike where they are."""
    if wide.size and (wide == wide.flat[0]).all() and np.isfinite(wide.flat[0]):
        return np.full(wide.shape, float(_drawn(wide.ravel()[:1], random)[0]))
    result: NDArray[np.float64] = wide.copy()
    for mask in (np.isfinite(wide) & (wide > 0), np.isfinite(wide) & (wide < 0)):
        if mask.any():
            result[mask] = _drawn(wide[mask], random)
    return result


def _rounded(number: float) -> float:
    """Returns two digits of a number: what it is like, and not what it is."""
    return float(f"{number:.2g}")


def with_stand_ins(proto: onnx.ModelProto, likeness: Sequence[Likeness]) -> onnx.ModelProto:
    """Returns a copy of a model with other values.

    Args:
        proto: The model, weights inside; not changed.
        likeness: For each of `constants`, in their order.
    """
    copy = copied(proto)
    for seed, (constant, like) in enumerate(zip(constants(copy), likeness, strict=True)):
        if like not in _UNCHANGED:
            constant.put(stand_in(constant.values, like, seed))
    return copy


def copied(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy of a model, which shares nothing with it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def sizes_of(proto: onnx.ModelProto) -> set[int]:
    """Returns the sizes of a model's weights and inputs."""
    shapes = [list(tensor.dims) for tensor in proto.graph.initializer]
    shapes += [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in proto.graph.input]
    return {size for shape in shapes for size in shape}


def resized(proto: onnx.ModelProto, sizes: Mapping[int, int]) -> onnx.ModelProto:
    """Returns a copy of a model in which one size is another everywhere: in inputs, weights, attributes, shapes.

    Whether that model is one, and fails in the same way, is to be tried.

    Args:
        proto: The model, weights inside; not changed.
        sizes: Each size to a smaller one.
    """
    copy = copied(proto)
    dims = [dim for value in copy.graph.input for dim in value.type.tensor_type.shape.dim]
    for dim in dims:
        if dim.HasField("dim_value"):
            dim.dim_value = sizes.get(dim.dim_value, dim.dim_value)
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    for constant in constants(copy):
        _resize(constant, sizes)
    for attribute in (entry for node in all_nodes(copy.graph.node) for entry in node.attribute):
        if attribute.type == AttributeProto.INT:
            attribute.i = sizes.get(attribute.i, attribute.i)
    return copy


def _resize(constant: Constant, sizes: Mapping[int, int]) -> None:
    values = constant.values
    if constant.is_structure and values.dtype.kind == "i":
        changed = [sizes.get(int(size), int(size)) for size in values.ravel()]
        constant.put(np.array(changed, values.dtype).reshape(values.shape))
    elif set(values.shape) & sizes.keys():
        constant.put(values[tuple(slice(sizes.get(size)) for size in values.shape)])


def as_inputs(proto: onnx.ModelProto, least_bytes: int) -> onnx.ModelProto:
    """Returns a copy of a model that is given its large weights, and does not hold them.

    Args:
        proto: The model; not changed.
        least_bytes: What is large.
    """
    copy = copied(proto)
    large = [tensor for tensor in copy.graph.initializer if tensor.ByteSize() >= least_bytes]
    for tensor in large:
        copy.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        copy.graph.initializer.remove(tensor)
    return copy
