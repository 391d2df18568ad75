"""Ranges of sizes divided into several profiles, each with an opt of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trtconv.errors import InputError
from trtconv.frozen import frozen
from trtconv.lattice import SizeLattice
from trtconv.lattice.tables import Vector
from trtconv.shapes import InputSpec, Range, ShapeProfile, dynamic_dims, make_profile

AUTO = "auto"
_MOST_PARTS = 6
"""Profiles that are made unasked."""
_FUZZ = 1e-9
"""What logarithms of sizes are off by."""

Sizes = dict[str, int]


def divide(
    inputs: Sequence[InputSpec], profile: ShapeProfile, lattice: SizeLattice, split: str
) -> tuple[tuple[ShapeProfile, ...], str]:
    """Divides the ranges of a profile into profiles; each opt is on the lattice, and the one asked for is among them.

    Args:
        inputs: The model's inputs.
        profile: What to divide.
        lattice: The accepted sizes.
        split: A number of profiles, or "auto": one for every doubling of the sizes.

    Returns:
        The profiles, and what was done in words ("" where nothing was).

    Raises:
        InputError: Nothing ranges, or the lattice is coarser than the split.
    """
    names = divisible(inputs, profile, lattice)
    if not names:
        if split in (AUTO, "1"):
            return (profile,), ""
        raise InputError("--split has nothing to divide: no dimension ranges", "Give a range, as in height=64:256:512.")
    groups = [_group(lattice, profile, group) for group in names]
    wanted = _octaves(groups) if split == AUTO else [_spread(group.range, _counted(split)) for group in groups]
    if len(wanted[0]) == 1:
        return (profile,), ""
    parts = [_parts(group, opts) for group, opts in zip(groups, wanted, strict=True)]
    made = []
    for at in zip(*parts, strict=True):
        bounds = {name: bound for name, bound in profile.dims.items() if any(name in t.columns for t in lattice.tables)}
        for group, (low, best, high) in zip(groups, at, strict=True):
            first = group.ends[0] if len(groups) > 1 else low
            bounds |= {name: Range(first[name], best[name], high[name]) for name in group.bounds}
        made.append(make_profile(inputs, bounds, profile.values))
    return tuple(made), _said(groups, parts)


def divisible(inputs: Sequence[InputSpec], profile: ShapeProfile, lattice: SizeLattice) -> list[list[str]]:
    """Returns the dimensions to divide, tied ones together; a batch only where nothing else ranges."""
    places = dynamic_dims(inputs)
    ranging = [
        [name for name in table.columns if profile.dims[name].min < profile.dims[name].max] for table in lattice.tables
    ]
    found = [group for group in ranging if group]
    batch = {name for name, at in places.items() if all(place.endswith(":0") for place in at)}
    return [group for group in found if not set(group) <= batch] or found


def _counted(split: str) -> int:
    if not split.isdecimal() or int(split) < 1:
        raise InputError(f"--split {split!r} is neither a number of profiles nor auto", "Write --split 3.")
    return int(split)


@frozen
class _Group:
    """Dimensions that are divided together. The one with the widest range leads, the others go along with it.

    Args:
        leader: Its name.
        bounds: What was asked for, of every dimension.
        columns: The accepted combinations in range.
    """

    leader: str
    bounds: Mapping[str, Range]
    columns: Mapping[str, Vector]

    @property
    def range(self) -> Range:
        """What was asked for of the leader."""
        return self.bounds[self.leader]

    @property
    def sizes(self) -> list[int]:
        """The accepted sizes of the leader."""
        return sorted(set(self.columns[self.leader].tolist()))

    @property
    def ends(self) -> tuple[Sizes, Sizes]:
        """The smallest and the largest sizes."""
        return {n: b.min for n, b in self.bounds.items()}, {n: b.max for n, b in self.bounds.items()}

    def at(self, size: int) -> Sizes:
        """Returns sizes of all whose leader has this one: those asked for, or those as far along their ranges."""
        if size == self.range.opt:
            return {name: bound.opt for name, bound in self.bounds.items()}
        along = math.log(size / self.range.min) / math.log(self.range.max / self.range.min)
        wanted = {name: bound.min * (bound.max / bound.min) ** along for name, bound in self.bounds.items()}
        rows = (self.columns[self.leader] == size).nonzero()[0]
        found = [{name: int(self.columns[name][row]) for name in self.bounds} for row in rows]
        return min(found, key=lambda sizes: sum(abs(math.log(n / wanted[name])) for name, n in sizes.items()))


def _group(lattice: SizeLattice, profile: ShapeProfile, names: Sequence[str]) -> _Group:
    table = next(table for table in lattice.tables if names[0] in table.columns)
    inside = table.take(
        table.within({name: (profile.dims[name].min, profile.dims[name].max) for name in table.columns})
    )
    bounds = {name: profile.dims[name] for name in names}
    leader = max(names, key=lambda name: bounds[name].max / bounds[name].min)
    return _Group(leader, bounds, inside.columns)


def _anchor(bound: Range) -> int:
    """Returns the size to place opts by: the opt. A largest size is no wish: it is what a range without an opt has."""
    return bound.opt if bound.opt < bound.max else bound.min


def _octaves(groups: Sequence[_Group]) -> list[list[float]]:
    """Returns opts for each group: the one asked for, halved and doubled as often as the widest range allows.

    Measured on a GPU (docs/sizes.md): kernels chosen for a size lose up to a fifth at sizes that differ by a sixth
    already, and next to nothing at its multiples once the GPU is full. What is run are mostly halves and doubles of
    one size, so these are met exactly. A range that is through before the others stays at its end.
    """
    anchors = [_anchor(group.range) for group in groups]
    down = max(math.floor(math.log2(o / g.range.min) + _FUZZ) for o, g in zip(anchors, groups, strict=True))
    up = max(math.ceil(math.log2(g.range.max / o) - _FUZZ) - 1 for o, g in zip(anchors, groups, strict=True))
    most = min(_MOST_PARTS, *(len(group.sizes) - 1 for group in groups))
    if down + 1 + up > most:
        return [_spread(group.range, max(1, most)) for group in groups]
    return [
        [min(max(o * 2.0**step, g.range.min), g.range.max) for step in range(-down, up + 1)]
        for o, g in zip(anchors, groups, strict=True)
    ]


def _spread(bound: Range, count: int) -> list[float]:
    """Returns opts in equal factors, the one that was asked for among them."""
    factor = (bound.max / bound.min) ** (1 / count)
    anchor = _anchor(bound)
    below = min(count - 1, math.floor(math.log(anchor / bound.min, factor) + _FUZZ))
    return [anchor * factor ** (step - below) for step in range(count)]


def _parts(group: _Group, opts: Sequence[float]) -> list[tuple[Sizes, Sizes, Sizes]]:
    """Returns min, opt and max of a group in every part: parts meet halfway between their opts, in factors."""
    distinct = sorted(set(opts))
    cuts = [group.ends[0], *map(group.at, _cuts(group, distinct)), group.ends[1]]
    parts = {}
    for index, opt in enumerate(distinct):
        low, high = cuts[index], cuts[index + 1]
        inside = [n for n in group.sizes if low[group.leader] <= n <= high[group.leader]]
        parts[opt] = (low, group.at(min(inside, key=lambda n: (abs(math.log(n / opt)), -n))), high)
    return [parts[opt] for opt in opts]


def _cuts(group: _Group, opts: Sequence[float]) -> list[int]:
    """Returns the accepted sizes of the leader nearest to halfway between the opts, no two of them the same."""
    sizes = group.sizes
    if len(sizes) < len(opts) + 1:
        raise InputError(
            f"--split {len(opts)} is finer than the sizes that the network accepts: {group.leader} has {len(sizes)} in"
            f" {group.range}",
            f"Use --split {max(1, len(sizes) - 1)} or less.",
        )
    cuts = [sizes[0]]
    for number in range(len(opts) - 1):
        wanted = math.sqrt(opts[number] * opts[number + 1])
        # Room is left for the cuts that are still to come, and for the end.
        free = [n for n in sizes if n > cuts[-1]][: number + 1 - len(opts)]
        cuts.append(min(free, key=lambda n: abs(math.log(n / wanted))))
    return cuts[1:]


def _said(groups: Sequence[_Group], parts: Sequence[Sequence[tuple[Sizes, Sizes, Sizes]]]) -> str:
    how = "they meet at one size"
    if len(groups) > 1:
        how = "each begins at the smallest size, so that every combination is in one"
    listed = "; ".join(
        f"{name} for {', '.join(str(best[name]) for _, best, _ in each)}"
        for group, each in zip(groups, parts, strict=True)
        for name in group.bounds
    )
    return (
        f"split into {len(parts[0])} profiles ({listed}; {how}): each further profile costs about as much build time as"
        " the first and makes the engine larger; device memory is that of the largest"
    )
