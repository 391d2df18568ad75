"""Bounds to propose for dimensions that were given none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trtconv.core.bounds import bounds_by_name
from trtconv.core.dim_flags import quoted
from trtconv.core.dims import InputSpec, Range
from trtconv.core.errors import TrtconvError
from trtconv.core.export_command import export_command
from trtconv.core.expressions import free_names
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import SizeLattice, Sizes, sizes_of

Runs = Callable[[Sequence[Mapping[str, int]]], bool]
"""Whether a network runs at each of some sizes of its dimensions."""
_BATCH = Range(1, 1, 8)
_SIZE = Range(64, 256, 512)
_VOLUME = Range(32, 64, 128)
"""Of a side of what has three: at 512 a few channels are more than the 2^31 elements that TensorRT counts."""
_HALVINGS = 6
"""How often sizes that are too large are halved, down to 8 from 512."""
_LOOKED_AT = (1024, 2**16)
"""To which size, and to which where none up to there is accepted, as of a sound that has to fill a long window."""


def usual_bounds(inputs: Sequence[InputSpec]) -> dict[str, Range]:
    """Returns the bounds to begin with of each dimension that can be chosen: of a batch, or of a side of a sample."""
    bounds: dict[str, Range] = {}
    for spec in inputs:
        sides = [dim for dim in spec.dims[1:] if isinstance(dim, str)]
        bounds |= {dim: _VOLUME if len(sides) > 2 else _SIZE for dim in sides if dim not in bounds}
    bounds |= {spec.dims[0]: _BATCH for spec in inputs if spec.dims and isinstance(spec.dims[0], str)}
    return {name: bounds.get(name, _SIZE) for name in free_names(bounds)}


def advise(model: OnnxModel, user_bounds: Mapping[str, Range], hint: str, runs: Runs | None = None) -> str:
    """Returns what to do about dimensions without bounds: to add some, with an example that the network accepts.

    Args:
        model: The model.
        user_bounds: The bounds that were given.
        hint: What is asked for, "Add: --dim height=MIN:OPT:MAX".
        runs: As for `accepted_bounds`.
    """
    try:
        sizes = sizes_of(model)
        limits = bounds_by_name(model.inputs, user_bounds)
        begin = usual_bounds(model.inputs)
        ranges = {name: limits[name] if name in limits else begin.get(name, _SIZE) for name in sizes.names}
        lattice = _lattice(sizes, limits, ranges)
        missing = [name for name in sizes.names if name not in limits]
        example = _example(lattice, accepted_bounds(sizes, lattice, ranges, missing, runs), missing)
    except TrtconvError:
        return hint
    refused = None if example or limits else _nothing(lattice)
    if refused is not None:
        return _no_bounds(model, lattice, refused)
    return f"{hint}, {example}" if example else hint


def _lattice(sizes: Sizes, limits: Mapping[str, Range], ranges: Mapping[str, Range]) -> SizeLattice:
    """Returns the sizes that a network accepts, as far as they are looked at."""
    for most in _LOOKED_AT:
        spans = {name: (limits[name].min, limits[name].max) if name in limits else (1, most) for name in sizes.names}
        lattice = sizes.lattice(spans, {name: ranges[name].opt for name in sizes.names})
        if not lattice.empty:
            break
    return lattice


def _nothing(lattice: SizeLattice) -> str | None:
    """Returns a dimension of which no size is accepted; None where each has one, or may have."""
    return next((name for name, dim in lattice.dims.items() if dim.valid == ()), None)


def _no_bounds(model: OnnxModel, lattice: SizeLattice, name: str) -> str:
    """Says that no bounds of a dimension will do, and why."""
    blamed = next((cause for cause in lattice.imposed if name in cause.dims), None)
    place = None if blamed is None else blamed.location
    why = "" if blamed is None or place is None else f": {place.op} {place.node or place.index} {blamed.evidence}"
    dim, command = lattice.dims[name], export_command(model.inputs, {}, model.path.name)
    return (
        f"No bounds will do, for the network takes no {name} from {dim.min} to {dim.max}{why}. What exported it is"
        f" wrong here: export it again, from its Python, which tries PyTorch's exporters in turn: {command}"
    )


def accepted_bounds(
    sizes: Sizes,
    lattice: SizeLattice,
    ranges: Mapping[str, Range],
    missing: Sequence[str],
    runs: Runs | None = None,
) -> dict[str, Range]:
    """Returns bounds near some, which the network accepts, and at whose max no tensor is too large; empty for none.

    Args:
        sizes: The network.
        lattice: The sizes that it accepts.
        ranges: What to begin with, of every dimension.
        missing: The dimensions that may be made smaller, all of them by half, again and again.
        runs: Says whether the network runs at sizes, for one of which not all is known otherwise; None: of such a one
            there are no bounds.
    """
    # Loaded only here: what knows of memory.
    from trtconv.shapes.memory import MOST_ELEMENTS, activations

    if _nothing(lattice) or (lattice.unknown and runs is None):
        return {}
    first: dict[str, Range] = {}
    for _ in range(_HALVINGS + 1):
        points = _moved(lattice, ranges, sizes.names)
        # An example that fails is worse than none.
        if not all(check.holds.all() for check in sizes.run(points).checks):
            break
        low, best, high = points
        bounds = {name: Range(low[name], best[name], high[name]) for name in sizes.names}
        trial = runs if lattice.unknown else None
        if activations(sizes, [high])[0].elements <= MOST_ELEMENTS and (trial is None or trial(points)):
            return bounds
        first = first or ({} if trial else bounds)
        ranges = {name: _halved(bound) if name in missing else bound for name, bound in ranges.items()}
    return first


def _halved(bound: Range) -> Range:
    return Range(*(max(size // 2, 1) for size in (bound.min, bound.opt, bound.max)))


def _example(lattice: SizeLattice, bounds: Mapping[str, Range], missing: Sequence[str]) -> str:
    """Returns an example of bounds that the network accepts, and what it accepts; empty where none is found."""
    if not bounds:
        return ""
    flags = [f"--dim {quoted(name)}={bounds[name]}" for name in missing]
    notes = [f"{n} takes {lattice.dims[n].describe()}" for n in missing if lattice.dims[n].valid is not None]
    notes += ["at which ONNX Runtime ran the network"] * bool(lattice.unknown)
    return f"for example {' '.join(flags)}" + (f" ({'; '.join(notes)})" if notes else "")


def _moved(lattice: SizeLattice, bounds: Mapping[str, Range], names: Sequence[str]) -> list[dict[str, int]]:
    """Returns min, opt and max of every dimension, moved to sizes that go together."""
    picked = [({n: getattr(bounds[n], pick) for n in names}, up) for pick, up in _PICKS]
    points = [lattice.rounded(sizes, up=up) for sizes, up in picked]
    return [{name: point[name] for name in names} for point in points]


_PICKS: tuple[tuple[str, bool | None], ...] = (("min", True), ("opt", None), ("max", False))
