"""Types and shapes of the tensors at which a model is cut, at every size of its profiles.

What ONNX's inference does not tell, behind an operator that it does not know, is seen by running the model. Sizes that
only the values of the inputs tell have no bounds, unless somebody gives them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from trtconv.core.bounds import shapes_with_sizes
from trtconv.core.dims import Range, Shape, ShapeProfile
from trtconv.core.documents.pipeline import PartTensor
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.graph.divisible import Divisible
from trtconv.graph.extract import shapes_with
from trtconv.graph.types import ONNX_DOMAINS, dtype_name
from trtconv.graph.walk import all_nodes, reads

_PICKS = ("min", "opt", "max")
_MOST_CORNERS = 24
"""Further sizes at which a model is run, at the most."""
BY_VALUES = "?"
"""Stands for a size that only values tell."""
SELECTIONS = ("NonZero", "NonMaxSuppression", "Unique", "Compress")
"""Operators that return as much as they find."""
SHAPED_BY: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(SELECTIONS, ()),
    **dict.fromkeys(("Reshape", "Expand", "Tile", "TopK", "Pad", "OneHot", "Split", "Squeeze", "Unsqueeze"), (1,)),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "AffineGrid"), (1,)),
    **dict.fromkeys(("ConstantOfShape", "BlackmanWindow", "HammingWindow", "HannWindow", "EyeLike"), (0,)),
    **dict.fromkeys(("If", "Loop", "Scan"), ()),
    "CenterCropPad": (1,),
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4),
    "Resize": (2, 3),
    "Upsample": (1,),
    "Col2Im": (1, 2),
    "MaxUnpool": (2,),
}
"""Operator to the inputs whose values make its result's shape; without any, those of all that it reads do."""

Column = tuple[int | None, ...]
"""The sizes of one axis at some sizes of the inputs; None where they are not known."""
Seen = Mapping[str, tuple[int, Shape]]
"""Tensor name to its ONNX element type and its shape, as a run of the model had them."""
Run = Callable[[Sequence[str], Sequence[Mapping[str, Shape]]], Sequence[Seen]]
"""Runs the model at some shapes of its inputs, and returns what the named tensors were at each; empty where it
cannot be run."""


class ManySizes(Protocol):
    """Sizes of tensors at many sizes of the inputs.

    Attributes:
        homes: For each combination of sizes, the position of its profile.
    """

    homes: NDArray[np.int64]

    def column(self, name: str, axis: int) -> NDArray[np.int64] | None:
        """Returns the sizes of an axis of a tensor at each of them; None where shapes alone do not tell them."""


@frozen
class _Point:
    """One size of the inputs.

    Args:
        profile: The position of the profile that it is of.
        inputs: Their shapes.
        shapes: Those of all tensors that inference tells.
        is_inside: Whether it lies between the ends of the profile.
    """

    profile: int
    inputs: Mapping[str, Shape]
    shapes: Mapping[str, tuple[int | None, ...]]
    is_inside: bool = False


class CutShapes:
    """What is known of the tensors at which a model may be cut.

    Args:
        divisible: The model.
        profiles: Sizes of its inputs; at least one.
        bounds: Bounds of sizes that only values tell, by their names.
        run: Runs the model.
        inside: For each profile sizes of its dimensions between its ends.
        spread: Tells the sizes of tensors at many more; None: nothing does.
    """

    def __init__(
        self,
        divisible: Divisible,
        profiles: Sequence[ShapeProfile],
        bounds: Mapping[str, Range],
        run: Run,
        inside: Sequence[Sequence[Mapping[str, int]]] = (),
        spread: ManySizes | None = None,
    ) -> None:
        self._divisible = divisible
        self._model = divisible.model
        self._profiles = tuple(profiles)
        self._bounds = bounds
        self._run = run
        self._inside, self._spread = inside, spread
        self._inputs = {value.name: value for value in self._model.proto.graph.input}
        self._results = {value.name: value for value in self._model.proto.graph.output}
        declared = (*self._model.proto.graph.value_info, *self._model.proto.graph.output)
        self._declared = {value.name: value.type.tensor_type for value in declared}
        self._shapes: dict[str, tuple[tuple[int, Shape] | None, ...]] = {}
        self._symbols: dict[tuple[Column, bytes | None], str] = {}
        self.ranges: tuple[dict[str, Range], ...] = tuple({} for _ in profiles)
        """The range of every name that stands in a shape, one mapping a profile."""
        for name in self._profiles[0].dims:
            for ranges, profile in zip(self.ranges, self._profiles, strict=True):
                ranges[name] = profile.dims[name]

    @functools.cached_property
    def _points(self) -> list[_Point]:
        """The sizes: min, opt and max of each profile; those at which one dimension is far from the others, where one
        inside may be smaller or larger than at any of these; and some between, which tell sizes apart that are rounded
        from the same one, and from those that never change."""
        shapes = [
            (number, {name: getattr(bounds, pick) for name, bounds in profile.inputs.items()})
            for number, profile in enumerate(self._profiles)
            for pick in _PICKS
        ]
        corners = [
            [(number, self._shapes_at(number, dims)) for dims in _corners(profile)]
            for number, profile in enumerate(self._profiles)
        ]
        # In turn: where there are too many, each profile has some.
        for corner in itertools.chain.from_iterable(itertools.zip_longest(*corners)):
            is_room = len(shapes) < 3 * len(self._profiles) + _MOST_CORNERS
            shapes += [corner] if is_room and corner is not None and corner[1] and corner not in shapes else []
        ends = len(shapes)
        for number, points in enumerate(self._inside):
            for point in ((number, self._shapes_at(number, dims)) for dims in points):
                shapes += [point] if point[1] and point not in shapes else []
        return [
            _Point(number, sizes, shapes_with(self._model, sizes), place >= ends)
            for place, (number, sizes) in enumerate(shapes)
        ]

    def _shapes_at(self, number: int, sizes: Mapping[str, int]) -> dict[str, Shape]:
        """Returns the shapes of inputs whose dimensions have these sizes; nothing where they cannot have them."""
        try:
            return shapes_with_sizes(self._model.inputs, sizes, self._profiles[number].values)
        except InputError:
            return {}

    @functools.cached_property
    def _by_values(self) -> frozenset[str]:
        """Tensors with a size that only values tell."""
        columns, shapes = self._model.main.columns, self._points[1].shapes
        tensors: set[str] = set()
        for index, node in enumerate(columns.nodes):
            reads = self._divisible.links[index].reads if index in self._divisible.links else frozenset(node.input)
            if self._is_shaped_by_values(node) or not tensors.isdisjoint(reads):
                tensors.update(name for name in node.output if name and None in shapes.get(name, (None,)))
        return frozenset(tensors)

    @functools.cached_property
    def _selecting(self) -> frozenset[tuple[str, str]]:
        """The model's own functions that return as much as they find."""
        keys: set[tuple[str, str]] = set()
        for function in self._model.proto.functions:
            inside = {(node.domain, node.op_type) for node in all_nodes(function.node)}
            # ONNX wants functions before those that call them.
            if not keys.isdisjoint(inside) or any(
                (domain, op) in inside for domain in ONNX_DOMAINS for op in SELECTIONS
            ):
                keys.add((function.domain, function.name))
        return frozenset(keys)

    def _is_shaped_by_values(self, node: onnx.NodeProto) -> bool:
        if (node.domain, node.op_type) in self._selecting:
            return True
        if node.domain not in ONNX_DOMAINS or node.op_type not in SHAPED_BY:
            return False
        places = SHAPED_BY[node.op_type]
        inputs = [node.input[place] for place in places if place < len(node.input)] if places else reads(node)
        return not all(self._divisible.is_of_shapes(name) for name in inputs if name)

    def observe(self, names: Sequence[str]) -> None:
        """Runs the model where inference does not tell of tensors, so that `tensor` knows them."""
        unknown = [name for name in names if name not in self._inputs and name not in self._shapes]
        unknown = [name for name in unknown if not self._is_inferred(name) and not self._has_type_alone(name)]
        if not unknown:
            return
        runs = list(self._run(unknown, [point.inputs for point in self._points]))
        inside = sum(point.is_inside for point in self._points)
        for name in unknown:
            sights = [run.get(name) for run in runs] + [None] * (len(self._points) - len(runs))
            # A run that ended early shows too little of what is fixed, and what is alike.
            is_seen = (
                len(runs) >= len(self._points) - inside + inside // 2 and None not in sights[: 3 * len(self._profiles)]
            )
            self._shapes[name] = tuple(sights) if is_seen else ()

    def _has_type_alone(self, name: str) -> bool:
        """Whether a tensor's type is known and its shape cannot be."""
        return name in self._by_values and bool(self._element(name))

    def _is_inferred(self, name: str) -> bool:
        shapes = [point.shapes.get(name, (None,)) for point in self._points[: 3 * len(self._profiles)]]
        return bool(self._element(name)) and not any(None in shape for shape in shapes)

    def _element(self, name: str) -> int:
        """Returns the ONNX type of a tensor's elements; 0 where it is not known."""
        shapes = self._shapes.get(name)
        declared = self._declared.get(name)
        return int(
            self._model.main.types.get(name, 0)
            or (shapes[0][0] if shapes and shapes[0] else 0)
            or (declared.elem_type if declared else 0)
        )

    def axes(self, name: str) -> tuple[int | str, ...] | None:
        """Returns the sizes of a tensor and the names of dynamic ones; None where the rank is not known."""
        if name in self._inputs:
            specs = {spec.name: spec.dims for spec in self._model.inputs}
            return specs.get(name)
        shapes: Sequence[tuple[int | None, ...] | None] = ()
        if self._is_inferred(name):
            shapes = [point.shapes.get(name) for point in self._points]
        elif name not in self._by_values and name in self._shapes:
            shapes = [sight and sight[1] for sight in self._shapes[name]]
        columns = _columns(shapes)
        if columns is None:
            return self._unsettled(name)
        sizes = [self._size(column, self._wide(name, axis)) for axis, column in enumerate(columns)]
        return tuple(
            self._bounded(f"{name}:{axis}", name, axis) if size == BY_VALUES else size
            for axis, size in enumerate(sizes)
        )

    def _wide(self, name: str, axis: int) -> NDArray[np.int64] | None:
        return None if self._spread is None else self._spread.column(name, axis)

    def _size(self, sizes: Column, wide: NDArray[np.int64] | None) -> int | str:
        """Returns a size, or a name for one that ranges.

        Args:
            sizes: What it is at all points; None at one where it is not known.
            wide: What it is at many more, where shapes alone tell that.
        """
        first, *others = {size for size in sizes if size is not None}.union(() if wide is None else wide.tolist())
        if not others:
            return first
        if 0 in (first, *others):
            # An optimization profile begins at 1.
            return BY_VALUES
        key = sizes, None if wide is None else wide.tobytes()
        if key not in self._symbols:
            names = {*self.ranges[0], *self._symbols.values()}
            numbered = (f"size{number}" for number in itertools.count())
            fresh = next(name for name in numbered if name not in names)
            self._symbols[key] = self._alike(*key) or self._named(sizes, wide) or fresh
            self._widen(self._symbols[key], sizes, wide)
        return self._symbols[key]

    def _alike(self, sizes: Column, wide: bytes | None) -> str:
        """Returns the name of another size that is the same wherever both are known; empty where none is."""
        pairs = self._symbols.items()
        return next((name for (own, more), name in pairs if own == sizes and None in (wide, more)), "")

    def _widen(self, name: str, sizes: Column, wide: NDArray[np.int64] | None) -> None:
        """Has the range of a size reach as far as that does; those of the inputs are what they are."""
        if name in self._profiles[0].dims:
            return
        for number, ranges in enumerate(self.ranges):
            places = zip(sizes, self._points, strict=True)
            own = [size for size, point in places if size is not None and point.profile == number]
            reach = (
                own if wide is None or self._spread is None else [*own, *wide[self._spread.homes == number].tolist()]
            )
            before = ranges.get(name, Range(own[1], own[1], own[1]))
            ranges[name] = Range(min(before.min, *reach), before.opt, max(before.max, *reach))

    def _named(self, sizes: Column, wide: NDArray[np.int64] | None) -> str:
        """Returns the name of a dimension of the inputs that has these sizes; empty where none has."""
        for spec in self._model.inputs:
            for axis, dim in enumerate(spec.dims):
                own = (point.inputs[spec.name][axis] for point in self._points)
                more = None if wide is None else self._wide(spec.name, axis)
                if (
                    isinstance(dim, str)
                    and all(n in (None, size) for n, size in zip(sizes, own, strict=True))
                    and (wide is None or more is None or np.array_equal(wide, more))
                ):
                    return dim
        return ""

    def _unsettled(self, name: str) -> tuple[int | str, ...] | None:
        """Returns the shape of a tensor that has sizes by values: under their names, where they have bounds."""
        picks = 3 * len(self._profiles)
        columns = _columns([point.shapes.get(name) for point in self._points])
        if columns is None:
            return None
        return tuple(
            self._bounded(f"{name}:{axis}", name, axis)
            if None in sizes[:picks]
            else self._size(sizes, self._wide(name, axis))
            for axis, sizes in enumerate(columns)
        )

    def _bounded(self, place: str, name: str, axis: int) -> str:
        dims = self._declared[name].shape.dim if name in self._declared else ()
        label = dims[axis].dim_param if axis < len(dims) else ""
        key = next((candidate for candidate in (label, place) if candidate in self._bounds), None)
        if key is None:
            return BY_VALUES
        for ranges in self.ranges:
            ranges[key] = self._bounds[key]
        return key

    def is_settled(self, name: str) -> bool:
        """Whether an engine can take a tensor: its type is known, and its sizes have bounds."""
        return (name in self._inputs or self.has_rank(name)) and BY_VALUES not in (self.axes(name) or ())

    def has_rank(self, name: str) -> bool:
        """Whether it is known what a tensor is, but for sizes."""
        return bool(self._element(name)) and self.axes(name) is not None

    def behind(self, names: Sequence[str], nodes: Sequence[int]) -> set[int]:
        """Returns those of some nodes that read tensors which cannot go into an engine, or what follows from them."""
        indices: set[int] = set()
        losses = set(names)
        for index in nodes:
            links = self._divisible.links[index]
            if not losses.isdisjoint(links.reads):
                indices.add(index)
                losses.update(name for name in links.makes if name in self._by_values and not self.is_settled(name))
        return indices

    def unbounded(self, index: int) -> list[str]:
        """Returns the names of the sizes without bounds that a node reads, TENSOR:AXIS."""
        names = sorted(name for name in self._divisible.links[index].reads if not self.is_settled(name))
        return [f"{name}:{axis}" for name in names for axis, n in enumerate(self.axes(name) or ()) if n == BY_VALUES]

    def tensor(self, name: str) -> PartTensor:
        """Returns a tensor as documents describe it."""
        spec = next((spec for spec in self._model.inputs if spec.name == name), None)
        if spec is not None:
            return PartTensor(name, spec.dtype, tuple(spec.dims))
        element = self._element(name)
        return PartTensor(name, dtype_name(element) if element else "", self.axes(name))

    def value(self, name: str) -> onnx.ValueInfoProto:
        """Returns a tensor as ONNX describes it, as far as it is known."""
        if name in self._inputs:
            return self._inputs[name]
        value = onnx.ValueInfoProto(name=name)
        element, axes = self._element(name), self.axes(name)
        if element:
            sizes = None if axes is None else [None if size == BY_VALUES else size for size in axes]
            value = helper.make_tensor_value_info(name, element, sizes)
        return value

    def result(self, name: str) -> onnx.ValueInfoProto:
        """Returns a tensor that a part makes, as ONNX describes it; those of the model as it declares them."""
        own = self._results.get(name)
        return self.value(name) if own is None else own


def _columns(shapes: Sequence[tuple[int | None, ...] | None]) -> list[tuple[int | None, ...]] | None:
    """Returns the sizes of each axis, None where a shape is not known; None where the rank is not."""
    ranks = {len(shape) for shape in shapes if shape is not None}
    if len(ranks) != 1:
        return None
    return [tuple(None if shape is None else shape[axis] for shape in shapes) for axis in range(ranks.pop())]


def _corners(profile: ShapeProfile) -> list[dict[str, int]]:
    """Returns sizes of which one is the smallest and all others are the largest, and the reverse."""
    ranging = [name for name, bound in profile.dims.items() if bound.min < bound.max]
    if len(ranging) < 2:
        return []
    return [
        {dim: getattr(bound, own if dim == name else others) for dim, bound in profile.dims.items()}
        for name, (own, others) in itertools.product(ranging, (("min", "max"), ("max", "min")))
    ]
