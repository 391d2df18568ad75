"""What `trtconv sizes` calls: the sizes that a model accepts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.bounds import bounds_by_name
from trtconv.core.dims import Range, dynamic_dims
from trtconv.core.encode import SCHEMA, plain
from trtconv.core.errors import InputError
from trtconv.core.expressions import derived
from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import SizeLattice, Sizes

UNASKED = Range(1, 64, 1024)
"""What is looked at for a dimension without bounds; said in the result."""


@frozen
class SizesRequest:
    """A call of `trtconv sizes`.

    Args:
        model: The .onnx file.
        dims: Bounds of dimensions; those without are looked at from 1 to 1024.
    """

    model: Path
    dims: Mapping[str, Range] = dataclasses.field(default_factory=dict)


@frozen
class SizesReport:
    """What `trtconv sizes` found.

    Args:
        model: Path of the model.
        lattice: The accepted sizes.
        ranges: The ranges that were looked at.
        unasked: Dimensions that were given no bounds.
        nearest: Valid sizes beside those of the given min, opt and max that are not: name to size to sizes.
        exit_code: 1 where a dimension has no valid size, else 0.
    """

    model: str
    lattice: SizeLattice
    ranges: Mapping[str, Range]
    unasked: tuple[str, ...]
    nearest: Mapping[str, Mapping[str, list[int]]]
    exit_code: int

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain JSON values."""
        about = {"nearest": plain(self.nearest), "unasked": list(self.unasked), "exit_code": self.exit_code}
        return {"schema": SCHEMA, "model": {"path": self.model}, **self.lattice.to_json(), **about}


def sizes(request: SizesRequest) -> SizesReport:
    """Finds the sizes that a model accepts, on shapes alone.

    Raises:
        InputError: A bad request or an unreadable model.
    """
    model = OnnxModel.load(request.model)
    found = Sizes(model)
    given = bounds_by_name(model.inputs, request.dims)
    if not found.names and request.dims:
        raise InputError(f"{request.model} has no dynamic dimension", "Leave out --dim.")
    ranges = {name: given.get(name, UNASKED) for name in found.names}
    lattice = found.lattice({n: (r.min, r.max) for n, r in ranges.items()}, {n: r.opt for n, r in ranges.items()})
    nearest: dict[str, dict[str, list[int]]] = {}
    for name in ranges:
        if name in given:
            for size in (given[name].min, given[name].opt, given[name].max):
                for dim, near in lattice.nearest({name: size}).items():
                    nearest.setdefault(dim, {}).update(near)
    computed = derived(list(dynamic_dims(model.inputs)))
    unasked = tuple(name for name in found.names if name not in given and name not in computed)
    broken = lattice.empty or (not lattice.dims and bool(found.run([{}]).checks))
    return SizesReport(str(request.model), lattice, ranges, unasked, nearest, 1 if broken else 0)
