"""Parts of a model, cut out as models of their own that take the sizes which they had inside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trtconv.core.dims import Range, ShapeProfile
from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import reads

_PICKS = ("min", "opt", "max")
_DISTANCES = (0, 1, 2, 4)

Sizes = tuple[int, ...]
"""The sizes of one axis: at min, opt and max of each profile."""


class Cutter:
    """Cuts parts out of the main graph of a model.

    Tensors that go from the rest into a part become its inputs, at the shapes that they have in the whole model at the
    min, opt and max of every profile; tensors that are constant become initializers.

    Args:
        model: The model; must not change meanwhile.
        profiles: Sizes of its inputs; without any, dynamic dimensions stay so.
    """

    def __init__(self, model: OnnxModel, profiles: Sequence[ShapeProfile]) -> None:
        self._model = model
        self._profiles = tuple(profiles)
        self._columns = model.main.columns
        self._reads = [reads(node) for node in self._columns.nodes]
        self._elements = _typed(model).main.types
        self._shapes = [shapes_at(model, profile, pick) for profile in self._profiles for pick in _PICKS]
        # Axes with the same sizes are one dimension, as they are in the model more often than not.
        self._names: dict[Sizes, str] = {}
        for name in self._profiles[0].dims if self._profiles else ():
            if ":" not in name:
                sizes = [getattr(profile.dims[name], pick) for profile in self._profiles for pick in _PICKS]
                self._names.setdefault(tuple(sizes), name)

    def __len__(self) -> int:
        return len(self._columns)

    def around(self, node: str) -> Iterator[list[int]]:
        """Yields the positions of a node and of its surroundings, ever wider; nothing where no node has that name."""
        positions = {index for index, name in enumerate(self._columns.names) if node and name == node}
        for closer, wider in itertools.pairwise((0, *_DISTANCES)):
            for _ in range(wider - closer):
                positions = self._with_neighbours(positions)
            if positions:
                yield sorted(positions)

    def cut(self, indices: Sequence[int]) -> onnx.ModelProto | None:
        """Returns a part as a model, or None where the shape of a tensor that goes into it is not known.

        Args:
            indices: Positions of its nodes, in order.
        """
        outputs = {name for index in indices for name in self._columns.outputs[index] if name}
        part = onnx.ModelProto(ir_version=max(4, self._model.proto.ir_version))
        part.opset_import.extend(self._model.proto.opset_import)
        part.functions.extend(self._model.proto.functions)
        part.graph.name = self._model.proto.graph.name or "part"
        part.graph.node.extend(self._columns.nodes[index] for index in indices)
        for name in sorted({name for index in indices for name in self._reads[index]} - outputs):
            if not self._give(part.graph, name):
                return None
        for name in self._results(indices):
            value = self._value(name)
            part.graph.output.append(self._typed(name) if value is None else value)
        return part

    def bounds(self, part: onnx.ModelProto) -> tuple[dict[str, Range], ...]:
        """Returns the ranges of a part's dynamic dimensions, for each profile."""
        dims = itertools.chain.from_iterable(value.type.tensor_type.shape.dim for value in part.graph.input)
        used = {dim.dim_param for dim in dims if dim.dim_param}
        bounds: tuple[dict[str, Range], ...] = tuple({} for _ in self._profiles)
        for sizes, name in self._names.items():
            if name in used:
                for number, ranges in enumerate(bounds):
                    ranges[name] = Range(*sorted(sizes[3 * number : 3 * number + 3]))
        return bounds

    def _with_neighbours(self, positions: set[int]) -> set[int]:
        outputs = {name for index in positions for name in self._columns.outputs[index] if name}
        names = {name for index in positions for name in self._reads[index]}
        columns = zip(self._columns.outputs, self._reads, strict=True)
        return positions | {
            i for i, (outs, ins) in enumerate(columns) if not (names.isdisjoint(outs) and outputs.isdisjoint(ins))
        }

    def _results(self, indices: Sequence[int]) -> list[str]:
        """Returns what the rest of the model takes from a part; where that is nothing, all that it makes."""
        inside = set(indices)
        uses = {value.name for value in self._model.proto.graph.output}
        uses.update(*(names for index, names in enumerate(self._reads) if index not in inside))
        outputs = [name for index in indices for name in self._columns.outputs[index] if name]
        return [name for name in outputs if name in uses] or outputs

    def _give(self, graph: onnx.GraphProto, name: str) -> bool:
        """Makes a tensor an initializer or an input of a part; False where that cannot be."""
        scope = self._model.main
        tensor = scope.constant(name)
        if tensor is not None:
            graph.initializer.add().CopyFrom(tensor)
            graph.initializer[-1].name = name
            return True
        for sparse in scope.graph.sparse_initializer:
            if sparse.values.name == name:
                graph.sparse_initializer.append(sparse)
                return True
        value = self._value(name)
        if value is not None:
            graph.input.append(value)
        return value is not None

    def _value(self, name: str) -> onnx.ValueInfoProto | None:
        """Describes a tensor; None where its type or a size is not known."""
        element = self._elements.get(name, 0)
        if not element:
            return None
        if not self._profiles:
            shape = self._model.main.shapes.get(name)
            value = {value.name: value for value in self._model.proto.graph.input}.get(name)
            return value or (None if shape is None else helper.make_tensor_value_info(name, element, shape))
        shapes = [profile.get(name) for profile in self._shapes]
        if any(shape is None or None in shape for shape in shapes):
            return None
        axes = zip(*(shape for shape in shapes if shape is not None), strict=True)
        return helper.make_tensor_value_info(name, element, [self._size(tuple(n or 0 for n in axis)) for axis in axes])

    def _typed(self, name: str) -> onnx.ValueInfoProto:
        """Describes a tensor whose shape is not known by its type, without which the parser refuses any output."""
        value = onnx.ValueInfoProto(name=name)
        element = self._elements.get(name, 0)
        if element:
            value.type.tensor_type.elem_type = element
        return value

    def _size(self, sizes: Sizes) -> int | str:
        if len(set(sizes)) == 1:
            return sizes[0]
        return self._names.setdefault(sizes, f"size{len(self._names)}")


def shapes_at(model: OnnxModel, profile: ShapeProfile, pick: str) -> Mapping[str, tuple[int | None, ...]]:
    """Returns the shapes of all tensors of the main graph at one size of the inputs.

    Args:
        model: The model.
        profile: Sizes of its inputs.
        pick: "min", "opt" or "max".
    """
    return shapes_with(model, {name: getattr(bounds, pick) for name, bounds in profile.inputs.items()})


def shapes_with(model: OnnxModel, inputs: Mapping[str, Sequence[int]]) -> Mapping[str, tuple[int | None, ...]]:
    """Returns the shapes of all tensors of the main graph where inputs have the given shapes."""
    proto = _widened(model.skeleton())
    for value in proto.graph.input:
        if value.name in inputs:
            sizes = inputs[value.name]
            value.CopyFrom(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, sizes))
    # What the file says of them holds for all sizes, if it is right.
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return OnnxModel(proto, model.path).main.shapes


_NARROW = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4)


def _typed(model: OnnxModel) -> OnnxModel:
    """Returns a model of which ONNX's inference knows the types, where 4-bit weights keep it from knowing any."""
    if not any(tensor.data_type in _NARROW for tensor in model.proto.graph.initializer):
        return model
    return OnnxModel(_widened(model.skeleton()), model.path)


def _widened(skeleton: onnx.ModelProto) -> onnx.ModelProto:
    """Makes 4-bit tensors of a skeleton 8-bit ones: up to opset 20 a DequantizeLinear of others has no result."""
    for value in skeleton.graph.input:
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = onnx.TensorProto.INT8
    for tensor in skeleton.graph.initializer:
        if tensor.data_type in _NARROW:
            tensor.CopyFrom(numpy_helper.from_array(np.zeros(tuple(tensor.dims), np.int8), tensor.name))
    return skeleton
