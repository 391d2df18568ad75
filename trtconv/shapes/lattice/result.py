"""What is known about the sizes that a network accepts."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.documents.lattice import DimRecord, ImposedRecord, LatticeRecord, UnknownNode
from trtconv.core.findings import Location
from trtconv.core.frozen import frozen
from trtconv.shapes.lattice.tables import Table, Vector
from trtconv.shapes.lattice.wording import listed, regular


@frozen
class DimLattice:
    """The sizes of one dimension that the network accepts.

    Args:
        name: The dimension.
        min: Smallest size that was asked about.
        max: Largest one.
        step: Distance of the finest regular grid that all valid sizes are on; None where there are fewer than two.
        offset: What that grid adds to the multiples of `step`.
        valid: The valid sizes in range; None where every size is.
        around: Valid sizes in range and somewhat beyond it, in order, for `nearest`.
        looked: Where only some sizes of a long range were looked at: those; None where all were, or a pattern that
            was tried at thousands of them tells of all. `valid` and `around` then have no others.
    """

    name: str
    min: int
    max: int
    step: int | None
    offset: int | None
    valid: tuple[int, ...] | None
    around: Sequence[int]
    looked: tuple[int, ...] | None = None

    def accepts(self, size: int) -> bool:
        """Whether a size is accepted, other dimensions permitting; of one that was not looked at, that it may be."""
        return _has(self.around, size) or (self.looked is not None and not _has(self.looked, size))

    def nearest(self, size: int) -> tuple[int | None, int | None]:
        """Returns the valid sizes next below (or at) and next above (or at) a size."""
        below, above = bisect.bisect_right(self.around, size), bisect.bisect_left(self.around, size)
        return (self.around[below - 1] if below else None, self.around[above] if above < len(self.around) else None)

    def rounded(self, size: int, *, up: bool | None) -> int:
        """Moves a size to a valid one; as `SizeLattice.rounded`."""
        below, above = self.nearest(size)
        if below is None or above is None:
            nearest = above if below is None else below
            return size if nearest is None else nearest
        if up is None:
            return above if above - size <= size - below else below
        return above if up else below

    def describe(self) -> str:
        """Says which sizes are valid: "multiples of 8 from 64 to 512"."""
        if self.valid is None:
            return f"every size from {self.min} to {self.max}" if self.max > self.min else f"{self.min}"
        if self.looked is not None:
            some = f"{listed(self.valid)} among" if self.valid else "none of"
            return f"{some} the sizes from {self.min} to {self.max} that were looked at"
        if not self.valid:
            return f"no size from {self.min} to {self.max}"
        if self.step is None or len(self.valid) < 3:
            return listed(self.valid)
        low, high = self.valid[0], self.valid[-1]
        if len(self.valid) != (high - low) // self.step + 1:
            sizes = np.arange(low, high + 1)
            pattern = regular(sizes, np.isin(sizes, self.valid))
            if pattern is None:
                return listed(self.valid)
            return f"{pattern}, to {high}" if "from" in pattern else f"{pattern}, from {low} to {high}"
        if self.step == 1:
            return f"{low} to {high}"
        plus = f" plus {self.offset}" if self.offset else ""
        return f"multiples of {self.step}{plus} from {low} to {high}"


@frozen
class Imposed:
    """What one node asks of the sizes.

    Args:
        dims: The dimensions.
        needs: What it asks of them: "a multiple of 8".
        evidence: What happens otherwise: "joins 25 and 24 at axis 2 with height 100".
        location: The node.
        source: The PyTorch line that it came from, or "".
    """

    dims: tuple[str, ...]
    needs: str
    evidence: str
    location: Location
    source: str = ""

    def __str__(self) -> str:
        place = self.location
        node = f"{place.op} {place.node}" if place.node else f"{place.op} (node {place.index})"
        source = f" ({self.source})" if self.source else ""
        if len(self.dims) == 1:
            return f"{node}{source} needs {self.dims[0]} to be {self.needs}: it {self.evidence}"
        return f"{node}{source} needs {self.needs}: it {self.evidence}"


@frozen
class SizeLattice:
    """The sizes that a network accepts.

    Args:
        dims: Every dimension by name, those that are computed from others as well.
        joint: Relations between dimensions, such as "height == width".
        imposed: Which nodes ask for it.
        unknown: Nodes behind which shapes cannot be told, and why.
        data_dependent: Nodes whose output size depends on the data.
        exact: Whether every combination in range was decided; otherwise relations of several dimensions were tried at
            some thousand combinations, or nodes are unknown.
        tables: The valid combinations; dimensions that are not tied are in tables of their own.
    """

    dims: Mapping[str, DimLattice]
    joint: tuple[str, ...] = ()
    imposed: tuple[Imposed, ...] = ()
    unknown: Mapping[str, str] = dataclasses.field(default_factory=dict)
    data_dependent: tuple[Location, ...] = ()
    exact: bool = True
    tables: tuple[Table, ...] = ()

    def record(self) -> LatticeRecord:
        """Returns what a document says of it."""
        return LatticeRecord(
            {
                name: DimRecord(dim.min, dim.max, dim.step, dim.offset, dim.valid, dim.describe())
                for name, dim in self.dims.items()
            },
            self.joint,
            tuple(
                ImposedRecord(cause.dims, cause.needs, cause.evidence, cause.source, cause.location, str(cause))
                for cause in self.imposed
            ),
            tuple(UnknownNode(node, why) for node, why in self.unknown.items()),
            self.data_dependent,
            self.exact,
        )

    @property
    def empty(self) -> bool:
        """Whether no size at all is accepted."""
        return any(dim.valid == () and dim.looked is None for dim in self.dims.values())

    def nearest(self, sizes: Mapping[str, int]) -> dict[str, dict[str, list[int]]]:
        """Returns the valid sizes beside those that are not: {"height": {"300": [296, 304]}}."""
        neighbours: dict[str, dict[str, list[int]]] = {}
        for name, size in sizes.items():
            dim = self.dims[name]
            if not dim.accepts(size):
                neighbours.setdefault(name, {})[str(size)] = [n for n in dim.nearest(size) if n is not None]
        return neighbours

    def rounded(self, sizes: Mapping[str, int], *, up: bool | None) -> dict[str, int]:
        """Moves sizes to valid ones, tied dimensions together.

        Args:
            sizes: The free dimensions.
            up: True for the next valid sizes above, False for those below, None for the nearest (above in a tie).
                Where there are none on that side, the nearest.
        """
        moved: dict[str, int] = {}
        for table in self.tables:
            (name, *others) = table.columns
            if not others:
                # Of a long range the table has only some sizes.
                moved[name] = self.dims[name].rounded(sizes[name], up=up)
            elif table.rows:
                row = _nearest_row(table.columns, sizes, up)
                moved.update({name: int(column[row]) for name, column in table.columns.items()})
        return {**sizes, **moved}


def _has(sizes: Sequence[int], size: int) -> bool:
    at = bisect.bisect_left(sizes, size)
    return at < len(sizes) and sizes[at] == size


def _nearest_row(columns: Mapping[str, Vector], sizes: Mapping[str, int], up: bool | None) -> int:
    away = {name: column - sizes[name] for name, column in columns.items()}
    # Half a step of preference for larger sizes breaks ties.
    distance: Any = sum(2 * np.abs(gap) - (gap > 0) for gap in away.values())
    if up is not None:
        wrong = np.zeros(len(distance), dtype=bool)
        for gap in away.values():
            wrong |= (gap < 0) if up else (gap > 0)
        if not wrong.all():
            distance = np.where(wrong, np.iinfo(np.int64).max, distance)
    return int(np.argmin(distance))
