"""What `trtconv sizes` calls: the sizes that a model accepts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from trtconv.core.bounds import bounds_by_name
from trtconv.core.dims import Range, dynamic_dims
from trtconv.core.documents.memory import MemoryRecord
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.encode import Document, plain
from trtconv.core.errors import InputError
from trtconv.core.expressions import derived
from trtconv.core.frozen import frozen
from trtconv.core.requests.base import Bounds, Request, takes_request
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import SizeLattice, Sizes
from trtconv.shapes.memory import activations
from trtconv.shapes.traced.search import baked_in

UNASKED = Range(1, 64, 1024)
"""What is looked at for a dimension without bounds; said in the result."""


@frozen
class SizesRequest(Request):
    """A call of `trtconv sizes`.

    Args:
        model: The .onnx file.
        dims: Bounds of dimensions; those without are looked at from 1 to 1024.
    """

    model: Path
    dims: Bounds = dataclasses.field(default_factory=dict)


@frozen
class SizesReport(Document):
    """What `trtconv sizes` found.

    Args:
        model: The model.
        lattice: The accepted sizes.
        unasked: Dimensions that were given no bounds.
        nearest: Valid sizes beside those of the given min, opt and max that are not: name to size to sizes.
        exit_code: 1 where a dimension has no valid size, else 0.
        memory: What the network takes at the largest accepted sizes; None where there are none.
        freed: Dimensions that the exporter's example fixed, and that build and rewrite free.
    """

    model: FileIdentity
    lattice: SizeLattice
    unasked: tuple[str, ...]
    nearest: Mapping[str, Mapping[str, list[int]]]
    exit_code: int
    memory: MemoryRecord | None = None
    freed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Returns the report as plain JSON values, those of the lattice among them."""
        head = {"schema": self.schema, "model": self.model.to_json(), **self.lattice.record().to_json()}
        rest = ("memory", "nearest", "unasked", "freed", "exit_code")
        return {**head, **{key: plain(getattr(self, key)) for key in rest}}


@takes_request
def sizes(request: SizesRequest) -> SizesReport:
    """Finds the sizes that a model accepts, on shapes alone.

    Raises:
        InputError: A bad request or an unreadable model.
    """
    model = OnnxModel.load(request.model)
    network = Sizes(model)
    bounds = bounds_by_name(model.inputs, request.dims)
    if not network.names and request.dims:
        raise InputError(f"{request.model} has no dynamic dimension", "Leave out --dim.")
    ranges = {name: bounds.get(name, UNASKED) for name in network.names}
    lattice = network.lattice({n: (r.min, r.max) for n, r in ranges.items()}, {n: r.opt for n, r in ranges.items()})
    nearest: dict[str, dict[str, list[int]]] = {}
    for name in ranges:
        if name in bounds:
            for size in (bounds[name].min, bounds[name].opt, bounds[name].max):
                for dim, near in lattice.nearest({name: size}).items():
                    nearest.setdefault(dim, {}).update(near)
    computed = derived(list(dynamic_dims(model.inputs)))
    free = tuple(name for name in network.names if name not in bounds and name not in computed)
    broken = lattice.empty or (not lattice.dims and bool(network.run([{}]).checks))
    largest = None if broken else _largest(lattice, ranges)
    code = 1 if broken else 0
    memory = None if largest is None else MemoryRecord(model.nbytes, tuple(activations(network, [largest])))
    freed = _freed(model, lattice, ranges)
    return SizesReport(FileIdentity(str(request.model)), lattice, free, nearest, code, memory, freed)


def _freed(model: OnnxModel, lattice: SizeLattice, ranges: Mapping[str, Range]) -> tuple[str, ...]:
    """Returns the dimensions of which one size of a range is accepted, and more are once the passes have run."""
    wide = {name: dim for name, dim in lattice.dims.items() if name in ranges and ranges[name].min < ranges[name].max}
    single = tuple(name for name, dim in wide.items() if dim.valid is not None and len(dim.valid) == 1)
    # Looked for only then: it takes seconds.
    baked = baked_in(model) if single else None
    return single if baked is not None and baked.examples() and not baked.refusals() else ()


def _largest(lattice: SizeLattice, ranges: Mapping[str, Range]) -> dict[str, int] | None:
    """Returns the accepted sizes of which each dimension, or combination of tied ones, is the largest in range.

    None where of those that were looked at none is accepted.
    """
    point: dict[str, int] = {}
    for table in lattice.tables:
        rows = table.take(table.within({name: (ranges[name].min, ranges[name].max) for name in table.columns}))
        if not rows.rows:
            return None
        row = rows.nearest_row({name: ranges[name].max for name in rows.columns})
        point |= {name: int(column[row]) for name, column in rows.columns.items()}
    return point
