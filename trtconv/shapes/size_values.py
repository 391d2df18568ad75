"""Values that follow from sizes in ways that the lattice does not follow, as something that runs the nodes has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.dims import Shape
from trtconv.graph.cut_shapes import SHAPED_BY
from trtconv.graph.divisible import Divisible
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice.number import Num
from trtconv.shapes.lattice.tensor import Tensor, boxed
from trtconv.shapes.lattice.trial import Node

Answer = tuple[Shape, Sequence[Any] | None]
"""The shape of a tensor and its elements, flat; None where these are more than the lattice follows."""
Compute = Callable[[OnnxModel, Sequence[Mapping[str, NDArray[Any]]]], Sequence[Answer | None]]
"""Runs a model of one output with each of some inputs; None where it does not run, fewer where it was stopped."""
_TOLD_BY: Mapping[str, tuple[int, ...]] = {**SHAPED_BY, "If": (0,)}
"""Operator to the inputs without whose values its results are not followed."""


class SizeValues:
    """Tells the lattice what follows from shapes and constants alone, by running the nodes that compute it: those
    between what the lattice knows and what it asks for. Made for one run of it.

    Args:
        model: The model.
        compute: Runs nodes.
    """

    def __init__(self, model: OnnxModel, compute: Compute) -> None:
        self._model = model
        self._compute = compute
        self._divisible = Divisible(model, ())
        self._answers: dict[str, Tensor | None] = {}
        self._stopped: set[str] = set()
        """Tensors whose nodes did not come to an end in time."""

    def __call__(self, _: int, node: Node, tensors: Mapping[str, Tensor]) -> dict[int, Tensor | None]:
        """Returns inputs to give a node instead of its own; see `trtconv.shapes.lattice.program.Revision`."""
        places = () if node.domain else _TOLD_BY.get(node.op, ())
        answers: dict[int, Tensor | None] = {}
        for place, name in enumerate(node.inputs):
            tensor = tensors.get(name)
            is_told = tensor is not None and (_is_told(tensor) if place in places else _has_sizes(tensor))
            if is_told or self._divisible.maker(name) is None:
                continue
            if name not in self._answers:
                self._answers[name] = self._run(name, tensors)
            if self._answers[name] is not None:
                answers[place] = self._answers[name]
        return answers

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What was computed, by name."""
        return {name: tensor for name, tensor in self._answers.items() if tensor is not None}

    def _run(self, name: str, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """Returns a tensor as running what computes it shows it; None where that does not work."""
        main = self._model.main
        starts = {
            key: tensor
            for key, tensor in {**tensors, **self.tensors}.items()
            # The lattice computes with more digits than a float has.
            if _is_told(tensor) and main.constant(key) is None and main.dtype(key) == "int64"
        }
        shapes = {key: [int(num.value) for num in tensor.shape or ()] for key, tensor in starts.items()}
        formula = self._divisible.formula(name, shapes)
        if formula is None or not self._stopped.isdisjoint(formula.main.producers):
            return None
        names = [spec.name for spec in formula.inputs]
        rows, places = _rows([starts[key] for key in names])
        ends = np.cumsum([0, *(math.prod(shapes[key]) for key in names)])
        pieces = [zip(names, np.split(np.array(row, np.int64), ends)[1:-1], strict=True) for row in rows]
        feeds = [{key: piece.reshape(shapes[key]) for key, piece in row} for row in pieces]
        answers = self._compute(formula, feeds)
        if len(answers) < len(rows):
            self._stopped.add(name)
            return None
        dtype = main.dtype(name)
        return _tensor(answers, places, np.dtype(dtype) if dtype in np.sctypeDict else None)


def _is_told(tensor: Tensor) -> bool:
    return tensor.data is not None and all(num.is_known for num in tensor.data.flat)


def _has_sizes(tensor: Tensor) -> bool:
    return tensor.shape is not None and all(num.is_known for num in tensor.shape)


def _rows(tensors: Sequence[Tensor]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Returns the different values of some tensors, and which of these they have at each candidate."""
    nums = [num for tensor in tensors if tensor.data is not None for num in tensor.data.flat]
    columns = np.broadcast_arrays(np.zeros(1), *(np.asarray(num.value) for num in nums))[1:]
    places: dict[tuple[int, ...], int] = {}
    rows = zip(*(column.astype(np.int64).tolist() for column in columns), strict=True) if columns else [()]
    numbers = [places.setdefault(row, len(places)) for row in rows]
    return list(places), numbers


def _tensor(answers: Sequence[Answer | None], places: Sequence[int], dtype: np.dtype[Any] | None) -> Tensor | None:
    """Returns what was computed as the lattice has it; None where nothing was, or another rank now and then."""
    first = next((answer for answer in answers if answer is not None), None)
    if first is None:
        return None
    # A size at which the nodes do not run is none of the model's: what it is there does not matter.
    own = [first if answer is None else answer for answer in answers]
    shapes, elements = [shape for shape, _ in own], [values for _, values in own]
    if len({len(shape) for shape in shapes}) > 1:
        return None
    sizes = [_num(column, places, np.dtype(np.int64)) for column in zip(*shapes, strict=True)]
    if len(set(shapes)) > 1 or any(values is None for values in elements) or dtype is None:
        return Tensor(sizes, None, dtype)
    columns = zip(*(values or () for values in elements), strict=True)
    return Tensor(sizes, boxed([_num(column, places, dtype) for column in columns], shapes[0]), dtype)


def _num(column: Sequence[Any], places: Sequence[int], dtype: np.dtype[Any]) -> Num:
    """Returns a number that is one of a column's at each candidate."""
    values = np.array(column, dtype)[list(places)]
    return Num(values[0].item()) if (values == values[0]).all() else Num(values, -1)
