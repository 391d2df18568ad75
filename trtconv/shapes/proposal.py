"""Bounds to propose for dimensions that were given none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtconv.core.bounds import bounds_by_name
from trtconv.core.dim_flags import quoted
from trtconv.core.dims import InputSpec, Range
from trtconv.core.errors import TrtconvError
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import SizeLattice, sizes_of

_BATCH = Range(1, 1, 8)
_SIZE = Range(64, 256, 512)
_VOLUME = Range(32, 64, 128)
"""Of a side of what has three: at 512 a few channels are more than the 2^31 elements that TensorRT counts."""
_LOOKED_AT = (1, 1024)


def usual_bounds(inputs: Sequence[InputSpec]) -> dict[str, Range]:
    """Returns the bounds to begin with of each dynamic dimension: of a batch, or of the sides of a sample."""
    bounds: dict[str, Range] = {}
    for spec in inputs:
        sides = [dim for dim in spec.dims[1:] if isinstance(dim, str)]
        bounds |= {dim: _VOLUME if len(sides) > 2 else _SIZE for dim in sides if dim not in bounds}
    return bounds | {spec.dims[0]: _BATCH for spec in inputs if spec.dims and isinstance(spec.dims[0], str)}


def propose(model: OnnxModel, user_bounds: Mapping[str, Range]) -> str:
    """Returns an example of bounds that the network accepts, and what it accepts; empty where none is found.

    Args:
        model: The model.
        user_bounds: The bounds that were given.
    """
    try:
        sizes = sizes_of(model)
        limits = bounds_by_name(model.inputs, user_bounds)
        spans = {name: (limits[name].min, limits[name].max) if name in limits else _LOOKED_AT for name in sizes.names}
        begin = usual_bounds(model.inputs)
        ranges = {name: limits[name] if name in limits else begin.get(name, _SIZE) for name in sizes.names}
        lattice = sizes.lattice(spans, {name: ranges[name].opt for name in sizes.names})
        missing = [name for name in sizes.names if name not in limits]
        bounds = _moved(lattice, ranges, sizes.names)
        # An example that fails is worse than none.
        points = [{name: size for name, size in point.items() if name in sizes.names} for point in bounds]
        if lattice.empty or lattice.unknown or not all(check.holds.all() for check in sizes.run(points).checks):
            return ""
        low, best, high = bounds
        flags = [f"--dim {quoted(name)}={Range(low[name], best[name], high[name])}" for name in missing]
    except TrtconvError:
        return ""
    steps = [f"{n} takes {lattice.dims[n].describe()}" for n in missing if lattice.dims[n].valid is not None]
    return f"for example {' '.join(flags)}" + (f" ({'; '.join(steps)})" if steps else "")


def _moved(lattice: SizeLattice, bounds: Mapping[str, Range], names: Sequence[str]) -> list[dict[str, int]]:
    """Returns min, opt and max of every dimension, moved to sizes that go together."""
    picked = [({n: getattr(bounds[n], pick) for n in names}, up) for pick, up in _PICKS]
    return [lattice.rounded(sizes, up=up) for sizes, up in picked]


_PICKS: tuple[tuple[str, bool | None], ...] = (("min", True), ("opt", None), ("max", False))
