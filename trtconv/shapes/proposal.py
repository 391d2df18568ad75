"""Bounds to propose for dimensions that were given none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtconv.core.bounds import bounds_by_name
from trtconv.core.dim_flags import quoted
from trtconv.core.dims import Range, dynamic_dims
from trtconv.core.errors import TrtconvError
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import SizeLattice, Sizes

_BATCH = Range(1, 1, 8)
_SIZE = Range(64, 256, 512)
_LOOKED_AT = (1, 1024)


def propose(model: OnnxModel, given: Mapping[str, Range]) -> str:
    """Returns an example of bounds that the network accepts, and what it accepts; empty where none is found.

    Args:
        model: The model.
        given: The bounds that were given.
    """
    try:
        sizes = Sizes(model)
        known = bounds_by_name(model.inputs, given)
        spans = {name: (known[name].min, known[name].max) if name in known else _LOOKED_AT for name in sizes.names}
        lattice = sizes.lattice(spans, {name: known[name].opt if name in known else 256 for name in sizes.names})
        places = dynamic_dims(model.inputs)
        missing = [name for name in sizes.names if name not in known]
        usual = {n: _BATCH if any(at.endswith(":0") for at in places.get(n, [])) else _SIZE for n in missing}
        bounds = _moved(lattice, {**known, **usual}, sizes.names)
        # An example that fails is worse than none.
        points = [{name: size for name, size in each.items() if name in sizes.names} for each in bounds]
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
