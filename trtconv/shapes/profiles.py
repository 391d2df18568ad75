"""Profiles on the size lattice: checked, rounded, narrowed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
import shlex
import sys
from collections.abc import Mapping, Sequence

from trtconv.core.bounds import make_profile
from trtconv.core.dims import InputSpec, Range, ShapeProfile, sizes_text
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.shapes.lattice import SizeLattice, first_faults
from trtconv.shapes.lattice.tables import Table
from trtconv.shapes.split import divide, divisible
from trtconv.shapes.view import SizesView

_MOST_CORNERS = 4096
"""Combinations of sizes that are looked up in profiles to see whether they cover a range."""


def rounded_profiles(
    inputs: Sequence[InputSpec], profile: ShapeProfile, lattice: SizeLattice, notes: list[str]
) -> ShapeProfile:
    """Moves min down, max up and opt to the nearest, so that what was asked for stays inside, padded or cropped.

    A dimension that was fixed keeps its size where the network accepts it, else it moves to the next size above:
    inputs can be padded. What is tied to it follows.
    """
    moved = {}
    for table in lattice.tables:
        ranges = {name: profile.dims[name] for name in table.columns}
        local = dataclasses.replace(lattice, tables=(_fixed_rows(table, ranges),))
        low = local.rounded({name: bound.min for name, bound in ranges.items()}, up=False)
        high = local.rounded({name: bound.max for name, bound in ranges.items()}, up=True)
        best = local.rounded({name: bound.opt for name, bound in ranges.items()}, up=None)
        for name, bound in ranges.items():
            moved[name] = Range(*sorted((low[name], best[name], high[name])))
            if moved[name] != bound:
                notes.append(f"{name}={bound} rounded to {moved[name]}")
    return make_profile(inputs, moved, profile.values)


def alone(view: SizesView, number: int) -> dict[str, Range]:
    """Returns the one size of each dimension whose range has ends that do not go together, wherever they are moved.

    So it is where height times width is one number: what each end alone could be leads from one refusal to the next.
    Nothing where moving helps, or the sizes to optimize for do not fit themselves.

    Args:
        view: Profiles, of which some do not fit.
        number: Of the profile.
    """
    profile = view.profiles[number]
    rows = [row for row, point in enumerate(view.points) if point[0] == number]
    faults = [view.faults[row] for row in rows if view.points[row][1] != "opt"]
    fits = not any(view.faults[row] for row in rows if view.points[row][1] == "opt")
    if not fits or not view.lattice.joint or not any(faults):
        return {}
    moved = rounded_profiles(view.model.inputs, profile, view.lattice, [])
    if not any(SizesView(view.model, [moved]).faults):
        return {}
    bits = functools.reduce(operator.or_, (fault.mask for fault in faults if fault))
    tied = [name for bit, name in enumerate(view.sizes.names) if bits >> bit & 1]
    sizes = {name: int(profile.dims[name].opt) for name in tied}
    return {name: Range(size, size, size) for name, size in sizes.items()}


def _fixed_rows(table: Table, ranges: Mapping[str, Range]) -> Table:
    """Returns the rows in which dimensions that were fixed have their size, or the next one above."""
    fixed = {name: bound.min for name, bound in ranges.items() if bound.min == bound.max}
    if not fixed:
        return table
    above = table.within({name: (fixed.get(name, 0), sys.maxsize) for name in ranges}).nonzero()[0]
    if not len(above):
        return table
    row = min(above.tolist(), key=lambda row: sum(table.columns[name][row] for name in fixed))
    sizes = {name: int(table.columns[name][row]) for name in fixed}
    return table.take(table.within({name: (sizes.get(name, 0), sizes.get(name, sys.maxsize)) for name in ranges}))


def refuse_gaps(view: SizesView, profiles: Sequence[ShapeProfile], ranges: Mapping[str, Range]) -> None:
    """Raises InputError where sizes that were asked for, and that the network accepts, are in no profile.

    Coverage can change only where a profile begins or ends, so those sizes and their neighbours are looked up, and
    the ends of what was asked.
    """
    points = _points(view, profiles, ranges)
    gaps = [p for p in points if not any(_inside(p, profile) for profile in profiles)]
    rest = {name: profiles[0].dims[name].opt for name in view.sizes.names}
    faults = first_faults(view.sizes.run([{**rest, **p} for p in gaps]).checks, len(gaps)) if gaps else []
    point = next((p for p, fault in zip(gaps, faults, strict=True) if fault is None), None)
    if point is None:
        return
    ranging = {name: size for name, size in point.items() if ranges[name].min < ranges[name].max}
    sizes = sizes_text(ranging)
    bounds = ", ".join(f"{name}={ranges[name].min}:{ranges[name].max}" for name in ranging)
    raise InputError(
        f"the profiles do not cover what --dim asks for ({bounds}): {sizes} is in none of the {len(profiles)}",
        f"Add a --profile with it, widen one, or leave out --dim {' and --dim '.join(ranging)}.",
    )


def _points(view: SizesView, profiles: Sequence[ShapeProfile], ranges: Mapping[str, Range]) -> list[dict[str, int]]:
    """Returns the combinations of sizes that are looked up.

    Where there are too many of them, dimensions that are the same in every profile, and cover what was asked, stay at
    their opt: they cannot make a gap alone.
    """
    ends = {name: _ends(view.lattice, profiles, name, b) for name, b in ranges.items() if name in view.sizes.names}
    if math.prod(map(len, ends.values())) > _MOST_CORNERS:
        for name in ends:
            bounds = {(profile.dims[name].min, profile.dims[name].max) for profile in profiles}
            if len(bounds) == 1 and _covers(profiles[0].dims[name], ranges[name]):
                ends[name] = [profiles[0].dims[name].opt]
    corners = itertools.islice(itertools.product(*ends.values()), _MOST_CORNERS)
    return [dict(zip(ends, sizes, strict=True)) for sizes in corners]


def _covers(bound: Range, limits: Range) -> bool:
    return bound.min <= limits.min and limits.max <= bound.max


def _ends(lattice: SizeLattice, profiles: Sequence[ShapeProfile], name: str, limits: Range) -> list[int]:
    sizes = [n for n in lattice.dims[name].around if limits.min <= n <= limits.max]
    ends = {*sizes[:1], *sizes[-1:]}
    for bound in (profile.dims[name] for profile in profiles):
        below, above = [n for n in sizes if n < bound.min], [n for n in sizes if n > bound.max]
        ends.update((*below[-1:], *above[:1], *(n for n in (bound.min, bound.max) if n in sizes)))
    return sorted(ends)


def _inside(sizes: Mapping[str, int], profile: ShapeProfile) -> bool:
    return all(profile.dims[name].min <= size <= profile.dims[name].max for name, size in sizes.items())


@frozen
class Narrower:
    """Profiles that ask less of the builder, and the flags that give them."""

    flags: str
    profiles: tuple[ShapeProfile, ...]


def narrower(inputs: Sequence[InputSpec], profiles: Sequence[ShapeProfile], lattice: SizeLattice) -> list[Narrower]:
    """Returns profiles to try where the builder breaks down on wide ones; the narrowest first, then the widest.

    Args:
        inputs: The model's inputs.
        profiles: What the builder broke down on.
        lattice: The accepted sizes.

    Returns:
        Everything fixed; then one dimension after the other left to range and the rest fixed, or, where one ranges
        only, two and four parts of it; then all of them in a narrow range. Empty where nothing ranges.
    """
    names = [name for table in lattice.tables for name in table.columns]
    bounds = {name: _span([profile.dims[name] for profile in profiles]) for name in names}
    whole = make_profile(inputs, bounds, profiles[0].values)
    groups = divisible(inputs, whole, lattice)
    ranging = [name for group in groups for name in group]
    if not ranging:
        return []
    fixed = {name: Range(bounds[name].opt, bounds[name].opt, bounds[name].opt) for name in ranging}
    low = lattice.rounded({n: math.ceil(math.sqrt(bounds[n].min * bounds[n].opt)) for n in names}, up=True)
    high = lattice.rounded({n: math.isqrt(bounds[n].max * bounds[n].opt) for n in names}, up=False)
    near = {n: Range(*sorted((low[n], bounds[n].opt, high[n]))) for n in ranging}
    tries = [{n: bounds[n] if n in group else fixed[n] for n in ranging} for group in groups]
    options = []
    for dims in (fixed, *(tries if len(groups) > 1 else ()), near):
        profile = make_profile(inputs, {**bounds, **dims}, whole.values)
        options.append(Narrower(_flags(dims), (profile,)))
    if len(groups) == 1:
        flags = _flags({n: bounds[n] for n in ranging})
        for parts in (2, 4):
            try:
                made_parts, _ = divide(inputs, whole, lattice, str(parts))
            except InputError:
                break
            options.insert(parts // 2, Narrower(f"{flags} --split {parts}", made_parts))
    return [option for option in options if option.profiles != tuple(profiles)]


def _span(bounds: Sequence[Range]) -> Range:
    return Range(min(b.min for b in bounds), bounds[0].opt, max(b.max for b in bounds))


def _flags(dims: Mapping[str, Range]) -> str:
    sizes = {name: bound.opt if bound.min == bound.max else bound for name, bound in dims.items()}
    return " ".join(f"--dim {shlex.quote(f'{name}={size}')}" for name, size in sizes.items())
