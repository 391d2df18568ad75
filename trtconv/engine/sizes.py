"""Sizes that an engine is to be tried at, and the network does not accept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trtconv.core.bounds import make_profile
from trtconv.core.dims import InputRange, Range, ShapeProfile, times
from trtconv.core.errors import InputError
from trtconv.core.findings import Severity
from trtconv.core.requests.base import Bounds
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.profiles import settle
from trtconv.runtimes.inputs import Feeds
from trtconv.shapes.lattice import SizeLattice


def refuse_sizes(model: OnnxModel, profiles: Sequence[ShapeProfile]) -> None:
    """Raises InputError where a size that the user asked for is none that the network accepts."""
    faults = [f for f in settle(model, profiles).findings if f.severity is Severity.ERROR]
    if faults:
        raise InputError(faults[0].message, faults[0].fix)


def refuse_inputs(model: OnnxModel, path: Path, feeds: Feeds, profile: ShapeProfile) -> None:
    """Raises InputError where the inputs of a file have a size that the network does not accept."""
    sizes = {f"{name}:{axis}": Range(n, n, n) for name, array in feeds.items() for axis, n in enumerate(array.shape)}
    elements = {name: tuple(map(int, feeds[name].reshape(-1))) for name in profile.values}
    try:
        values = {name: InputRange(*[numbers] * 3) for name, numbers in elements.items()}
        settled = settle(model, [make_profile(model.inputs, sizes, values)])
    except InputError as error:
        raise InputError(f"{path}: {error.message}", "Give inputs whose sizes go together.") from error
    faults = [finding for finding in settled.findings if finding.severity is Severity.ERROR]
    if not faults:
        return
    inputs = ", ".join(f"{name} {times(array.shape)}" for name, array in feeds.items())
    nearest = _nearest(settled.lattice, settled.profiles[0].dims)
    raise InputError(f"{path}: {inputs}: {faults[0].message}", nearest or faults[0].fix)


def _nearest(lattice: SizeLattice, dims: Bounds) -> str:
    """Says which sizes are nearest to those that the network does not accept; nothing where each alone is accepted."""
    lines = []
    for name, dim in lattice.dims.items():
        if name in dims and not dim.accepts(dims[name].opt):
            near = [str(size) for size in dim.nearest(dims[name].opt) if size is not None]
            lines += [f"The nearest sizes of {name} that it accepts are {' and '.join(near)}."] if near else []
    return " ".join(lines)
