"""What requests ask of a network: sizes that it accepts, how often, and which of them may run at which others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.core.dims import sizes_text
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.requests.base import Bounds
from trtconv.core.traffic import Traffic
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import SizeLattice, Sizes, first_faults
from trtconv.shapes.lattice.tables import Table

_MOST_SIZES = 4000
_MARGIN = 2
"""How much larger than the largest request sizes may be that requests are padded to."""

Point = Mapping[str, int]


@frozen
class Demand:
    """Requests at sizes that a network accepts.

    Args:
        points: The sizes at which requests can run at the least, each once.
        counts: How many requests run at each.
        smaller: How many of these are smaller, and padded.
        fits: Whether requests of a size (row) may be padded to another (column).
        lattice: The accepted sizes.
    """

    points: Sequence[Point]
    counts: NDArray[np.float64]
    smaller: NDArray[np.float64]
    fits: NDArray[np.bool_]
    lattice: SizeLattice

    def padded(self, row: int, run: int) -> float:
        """Returns how many requests of a size are padded where they run at another."""
        return float(self.smaller[row] if row == run else self.counts[row])

    def rounded(self, point: Point, *, up: bool) -> dict[str, int]:
        """Returns the accepted sizes next to some, none smaller or none larger.

        Raises:
            InputError: There are none.
        """
        sizes: dict[str, int] = {}
        for table in self.lattice.tables:
            own = {name: point[name] for name in table.columns}
            nearest = _next(table, own, up=up)
            if nearest is None:
                side = "above" if up else "below"
                raise InputError(
                    f"the network accepts nothing {side} {sizes_text(own)} for a profile to end at",
                    "Leave these sizes out, or plan for them by themselves.",
                )
            sizes |= nearest
        return {**point, **sizes}


def demand_of(model: OnnxModel, sizes: Sizes, traffic: Traffic, dims: Bounds, keep: Collection[str]) -> Demand:
    """Returns the requests of a table, each at the smallest sizes that the network accepts.

    Args:
        model: The model.
        sizes: Its sizes.
        traffic: The table, with counts.
        dims: Sizes of dimensions that are no columns.
        keep: Dimensions that are never padded.

    Raises:
        InputError: The model has no such dimension, or one is lacking, or the network accepts nothing for a request;
            the message names the line.
    """
    if not sizes.names:
        raise InputError(f"{model.path} has no dynamic dimension", "It takes one size: it needs no plan.")
    fixed = traffic.fixed(dims)
    requests: list[tuple[str, dict[str, int]]] = []
    if len(traffic.distinct()) > _MOST_SIZES:
        raise InputError(
            f"{traffic.path} has {len(traffic.distinct())} different sizes, and {_MOST_SIZES} are the most",
            "Round them up, to multiples of 8 or 16.",
        )
    keys = {}
    for key, row in traffic.distinct().items():
        profile = traffic.profile_of(row, fixed, model.inputs)
        keys[key] = len(requests)
        requests.append((f"{traffic.path}:{row.line}", {name: profile.dims[name].opt for name in sizes.names}))
    static = _fixed_dims(keep, sizes.names)
    lattice = _lattice(sizes, [point for _, point in requests], static)
    points = [_upwards(lattice, point, static, where) for where, point in requests]
    _require_accepted(sizes, points, [where for where, _ in requests])
    order = list(dict.fromkeys(tuple(point.items()) for point in points))
    counts, smaller = np.zeros(len(order)), np.zeros(len(order))
    places = {point: place for place, point in enumerate(order)}
    for row in traffic.rows:
        number = keys[tuple(row.sizes.values())]
        place = places[tuple(points[number].items())]
        counts[place] += row.number
        smaller[place] += row.number if points[number] != requests[number][1] else 0
    table = np.array([[size for _, size in point] for point in order], np.int64)
    fits = np.asarray((table[None, :, :] >= table[:, None, :]).all(axis=2))
    for name in static:
        column = table[:, sizes.names.index(name)]
        fits = fits & (column[None, :] == column[:, None])
    return Demand([dict(point) for point in order], counts, smaller, fits, lattice)


def _fixed_dims(keep: Collection[str], names: Sequence[str]) -> list[str]:
    for name in keep:
        if name not in names:
            raise InputError(f"--keep {name}: the model has no such dimension", f"It has {', '.join(names)}.")
    return [name for name in names if name in keep]


def _lattice(sizes: Sizes, points: Sequence[Point], fixed: Collection[str]) -> SizeLattice:
    columns = {name: [point[name] for point in points] for name in sizes.names}
    spans = {name: (min(column), max(column) * (1 if name in fixed else _MARGIN)) for name, column in columns.items()}
    return sizes.lattice(spans, {name: max(column) for name, column in columns.items()}, columns)


def _upwards(lattice: SizeLattice, point: Point, fixed: Collection[str], where: str) -> dict[str, int]:
    """Returns the smallest accepted sizes that are no smaller than some; those that are held are the same."""
    sizes: dict[str, int] = {}
    for table in lattice.tables:
        own = {name: point[name] for name in table.columns}
        nearest = _next(table, own, up=True, fixed=fixed)
        if nearest is None:
            same = [name for name in own if name in fixed]
            why = f", with {', '.join(same)} as it is" if same else ""
            raise InputError(
                f"{where}: the network accepts nothing from {sizes_text(own)} on{why}", "Leave the line out."
            )
        sizes |= nearest
    return {name: sizes.get(name, size) for name, size in point.items()}


def _next(table: Table, point: Point, *, up: bool, fixed: Collection[str] = ()) -> dict[str, int] | None:
    inside = np.ones(table.rows, dtype=bool)
    for name, column in table.columns.items():
        size = point[name]
        inside &= column == size if name in fixed else (column >= size if up else column <= size)
    rows = inside.nonzero()[0]
    if not len(rows):
        return None
    extent = math.prod((table.columns[name][rows].astype(float) for name in point), start=np.ones(len(rows)))
    row = rows[extent.argmin() if up else extent.argmax()]
    return {name: int(column[row]) for name, column in table.columns.items()}


def _require_accepted(sizes: Sizes, points: Sequence[Point], where: Sequence[str]) -> None:
    """Raises InputError where a size is not accepted after all: of long ranges the lattice looks at a part."""
    for fault, place, point in zip(first_faults(sizes.run(points).checks, len(points)), where, points, strict=True):
        if fault is not None:
            raise InputError(f"{place}: the network does not accept {sizes_text(point)}", "Leave the line out.")
