"""How much memory a network's activations take, by the shapes that the lattice computes: what is alive at once.

Inputs and outputs are the caller's and there all the time; every other tensor from the node that makes it to the last
one that reads it. Nothing is fused but what keeps the size of its only input and may be written over it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.core.documents.memory import Activations
from trtconv.core.findings import Location
from trtconv.shapes.lattice import SizeLattice, Sizes, Tensor, Trial
from trtconv.shapes.lattice.number import distinct
from trtconv.shapes.lattice.program import Program

MOST_ELEMENTS = 2**31 - 1
"""Of a tensor; TensorRT counts the elements of some in 32 bits."""
_SMOOTH = (
    "Relu",
    "LeakyRelu",
    "Sigmoid",
    "Tanh",
    "Clip",
    "Elu",
    "Selu",
    "Softplus",
    "HardSigmoid",
    "HardSwish",
    "Gelu",
)
_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")
_IN_PLACE = frozenset((*_SMOOTH, "Mish", "Erf", "Abs", "Neg", "Exp", "Log", "Sqrt", *_VIEWS))
_ITEM_BYTES = 4
"""Of an element whose type is not known."""
_TRIED = 64
"""Sizes tried at once where the largest that fits is looked for."""

Point = Mapping[str, int]
Numbers = NDArray[np.float64]


def activations(sizes: Sizes, points: Sequence[Point], trial: Trial | None = None) -> list[Activations]:
    """Returns what activations take at some sizes.

    Args:
        sizes: The network.
        points: Sizes of every free dimension.
        trial: A run at these points that kept every tensor, where there is one.
    """
    trial = trial or sizes.run(points, keep=True)
    program, inputs = sizes.runner.program, [spec.name for spec in sizes.runner.inputs]
    counts = {name: _elements(trial, tensor) for name, tensor in trial.tensors.items() if name not in program.constants}
    makers = {name: node for node in program.nodes for name in node.outputs if name and node.op != "Constant"}
    elements = {name: count for name in (*inputs, *makers) if (count := counts.get(name)) is not None}
    complete = len(elements) == len({*inputs, *makers})
    total, at = _most_alive(program, trial, elements, inputs)
    results = []
    for row, point in enumerate(points):
        largest = max(elements, key=lambda name: elements[name][row], default="")
        place = makers[largest].location if largest in makers else Location(tensor=largest)
        node = program.nodes[int(at[row])].location if program.nodes else Location()
        most = int(elements[largest][row]) if largest else 0
        results.append(Activations(dict(point), int(total[row]), node, largest, most, complete, place))
    return results


def _elements(trial: Trial, tensor: Tensor) -> Numbers | None:
    """Returns how many elements a tensor has at every point, None where that is not known."""
    count = tensor.elements
    # A size that a file has as a float may be none.
    return np.ones(trial.rows) * count if count is not None and np.isfinite(count).all() else None


def _most_alive(
    program: Program, trial: Trial, counts: Mapping[str, Numbers], inputs: Sequence[str]
) -> tuple[Numbers, NDArray[np.int64]]:
    """Returns the most bytes that are alive at once, and the number of the node at which they are."""

    def size(name: str) -> Numbers:
        dtype = trial.tensors[name].dtype
        return counts[name] * (dtype.itemsize if dtype is not None else _ITEM_BYTES)

    ends = {*inputs, *program.outputs}
    alive = sum((size(name) for name in ends if name in counts), np.zeros(trial.rows))
    most, at = alive.copy(), np.zeros(trial.rows, np.int64)
    inner: dict[str, Numbers] = {}
    ending: dict[int, list[str]] = {}
    for name, index in program.last_use.items():
        ending.setdefault(index, []).append(name)
    for index, node in enumerate(program.nodes):
        names = [n for n in node.outputs if n in counts and n not in ends and n in program.last_use]
        outputs = {name: size(name) for name in names}
        first = node.inputs[0] if node.inputs else ""
        over = node.op in _IN_PLACE and program.last_use.get(first) == index and len(outputs) == 1
        if over and first in inner and np.array_equal(inner[first], outputs[names[0]]):
            inner[names[0]] = inner.pop(first)
        else:
            inner |= outputs
            alive = alive + sum(outputs.values(), np.zeros(trial.rows))
        at[alive > most] = index
        most = np.maximum(most, alive)
        for name in ending.get(index, []):
            alive = alive - inner.pop(name, np.zeros(trial.rows))
    return most, at


def largest_that_fits(
    sizes: Sizes, lattice: SizeLattice, least: Point, point: Point, room: float
) -> list[dict[str, int]]:
    """Returns accepted sizes, below some that are too large, at which the activations fit.

    Args:
        sizes: The network.
        lattice: The sizes that it accepts.
        least: The smallest that are of interest.
        point: What is too large.
        room: Bytes that there are for the activations.

    Returns:
        For each dimension, or dimensions that are tied, the largest with the others as in `point`; where none of these
        fits, one entry with all of them smaller by the same share; empty where nothing fits.
    """
    steps = []
    for table in lattice.tables:
        rows = table.take(table.within({name: (least[name], point[name]) for name in table.columns}))
        order = np.argsort(np.prod(np.stack([column.astype(float) for column in rows.columns.values()]), axis=0))
        columns = {name: column[order] for name, column in rows.columns.items()}
        steps.append([{name: int(column[i]) for name, column in columns.items()} for i in range(len(order))])
    points = []
    for choices in steps:
        index = _last_that_fits(sizes, [{**point, **choice} for choice in choices], room)
        points += [choices[index]] if index >= 0 else []
    if points or not steps or not all(steps):
        return points
    count = max(map(len, steps))
    picked = [[choices[i * (len(choices) - 1) // max(count - 1, 1)] for choices in steps] for i in range(count)]
    together = [{name: size for choice in choices for name, size in choice.items()} for choices in picked]
    index = _last_that_fits(sizes, together, room)
    return [together[index]] if index >= 0 else []


def _last_that_fits(sizes: Sizes, points: Sequence[Point], room: float) -> int:
    """Returns the last of points, the smallest first, at which activations fit; -1 where none does."""
    low, high = -1, len(points)
    while high - low > 1:
        picks = distinct(np.linspace(low + 1, high - 1, _TRIED).astype(np.int64))
        fits = np.array([peak.bytes <= room for peak in activations(sizes, [points[i] for i in picks])])
        low = int(picks[fits].max(initial=low))
        high = int(picks[picks > low].min(initial=high))
    return low
