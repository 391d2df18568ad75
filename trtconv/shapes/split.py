"""Ranges of sizes divided into several profiles, each with an opt of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trtconv.core import budget
from trtconv.core.bounds import make_profile
from trtconv.core.dims import InputSpec, Range, ShapeProfile, dynamic_dims
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.shapes.lattice import SizeLattice
from trtconv.shapes.lattice.tables import Table

AUTO = "auto"
_MOST_PARTS = 6
"""Profiles that are made unasked."""
_FUZZ = 1e-9
"""What logarithms of sizes are off by."""

Sizes = dict[str, int]
_Part = tuple[Sizes, Sizes, Sizes]
"""Min, opt and max of a group's dimensions in one profile."""


def divide(
    inputs: Sequence[InputSpec], profile: ShapeProfile, lattice: SizeLattice, split: str
) -> tuple[tuple[ShapeProfile, ...], str]:
    """Divides the ranges of a profile into profiles that together cover it; the opt asked for is that of one of them.

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
    opts = _octaves(groups) if split == AUTO else _counted(groups, split)
    if len(opts[0]) == 1:
        return (profile,), ""
    meeting = len(groups) == 1 and groups[0].is_line
    parts = [_meeting(group, own) if meeting else _nested(group, own) for group, own in zip(groups, opts, strict=True)]
    free = {name: bound for name, bound in profile.dims.items() if any(name in t.columns for t in lattice.tables)}
    profiles = []
    for at in zip(*parts, strict=True):
        bounds = {
            name: Range(low[name], best[name], high[name])
            for group, (low, best, high) in zip(groups, at, strict=True)
            for name in group.bounds
        }
        profiles.append(make_profile(inputs, {**free, **bounds}, profile.values))
    return tuple(profiles), _split_text(groups, parts, meeting=meeting)


def divisible(inputs: Sequence[InputSpec], profile: ShapeProfile, lattice: SizeLattice) -> list[list[str]]:
    """Returns the dimensions to divide, tied ones together; a batch only where nothing else ranges."""
    places = dynamic_dims(inputs)
    ranging = [
        [name for name in table.columns if profile.dims[name].min < profile.dims[name].max] for table in lattice.tables
    ]
    groups = [group for group in ranging if group]
    batch = {name for name, at in places.items() if all(place.endswith(":0") for place in at)}
    return [group for group in groups if not set(group) <= batch] or groups


@frozen
class _Group:
    """Dimensions that are divided together. The one with the widest range leads, the others go along with it.

    Args:
        leader: Its name.
        bounds: What was asked for, of every dimension.
        table: The accepted combinations in range.
        sizes: The accepted sizes of the leader.
    """

    leader: str
    bounds: Mapping[str, Range]
    table: Table
    sizes: Sequence[int]

    @property
    def range(self) -> Range:
        """What was asked for of the leader."""
        return self.bounds[self.leader]

    @property
    def ends(self) -> tuple[Sizes, Sizes]:
        """The smallest and the largest sizes."""
        return {n: b.min for n, b in self.bounds.items()}, {n: b.max for n, b in self.bounds.items()}

    @property
    def is_line(self) -> bool:
        """Whether each size of the leader goes with one of every other dimension, and larger ones with larger."""
        order = self.table.columns[self.leader].argsort(kind="stable")
        leader, *others = (self.table.columns[n][order] for n in (self.leader, *(set(self.bounds) - {self.leader})))
        return bool((leader[1:] > leader[:-1]).all() and all((other[1:] >= other[:-1]).all() for other in others))

    def nearest(self, size: float) -> int:
        """Returns the accepted size of the leader that is nearest, in factors; the larger one in a tie."""
        return min(self.sizes, key=lambda n: (abs(math.log(n / size)), -n))

    def at(self, size: int, low: Sizes, high: Sizes) -> Sizes:
        """Returns sizes of all inside a box whose leader has this one: those asked for, or those as far along."""
        if size == self.range.opt:
            return {name: bound.opt for name, bound in self.bounds.items()}
        along = math.log(size / self.range.min) / math.log(self.range.max / self.range.min)
        goals = {name: bound.min * (bound.max / bound.min) ** along for name, bound in self.bounds.items()}
        box = {name: (low[name], high[name]) for name in self.bounds} | {self.leader: (size, size)}
        inside = self.table.take(self.table.within(box)).columns
        points = [{name: int(inside[name][row]) for name in inside} for row in range(len(inside[self.leader]))]
        return min(
            points, key=lambda point: sum(abs(math.log(n / goals[name])) for name, n in point.items()), default=high
        )


def _group(lattice: SizeLattice, profile: ShapeProfile, names: Sequence[str]) -> _Group:
    table = next(table for table in lattice.tables if names[0] in table.columns)
    inside = table.take(
        table.within({name: (profile.dims[name].min, profile.dims[name].max) for name in table.columns})
    )
    bounds = {name: profile.dims[name] for name in names}
    leader = max(names, key=lambda name: bounds[name].max / bounds[name].min)
    columns = {name: inside.columns[name] for name in names}
    return _Group(leader, bounds, Table(columns), sorted(set(columns[leader].tolist())))


def _octaves(groups: Sequence[_Group]) -> list[list[float]]:
    """Returns opts for each group: the one asked for, halved and doubled as often as the widest range allows.

    Measured on a GPU (docs/sizes.md): kernels chosen for a size lose up to a fifth at sizes that differ by a sixth
    already, and next to nothing at its multiples once the GPU is full. What is run are mostly halves and doubles of
    one size, so these are met exactly. A range that is through before the others stays at its end.
    """
    ranges = [group.range for group in groups]
    below = max(math.floor(math.log2(bound.opt / bound.min) + _FUZZ) for bound in ranges)
    above = max(0, *(math.ceil(math.log2(bound.max / bound.opt) - 1 - _FUZZ) for bound in ranges))
    most = min(_MOST_PARTS, max(len(group.sizes) for group in groups) - 1)
    if below + 1 + above > most:
        return _spread(ranges, max(1, most))
    steps = range(-below, above + 1)
    return [[min(max(bound.opt * 2.0**step, bound.min), bound.max) for step in steps] for bound in ranges]


def _counted(groups: Sequence[_Group], split: str) -> list[list[float]]:
    """Returns as many opts for each group as `--split` says."""
    if not split.isdecimal() or int(split) < 1:
        raise InputError(f"--split {split!r} is neither a number of profiles nor auto", "Write --split 3.")
    finest = max(groups, key=lambda group: len(group.sizes))
    if len(finest.sizes) < int(split) + 1:
        raise InputError(
            f"--split {split} is finer than the sizes that the network accepts: {finest.leader} has"
            f" {len(finest.sizes)} in {finest.range}",
            f"Use --split {max(1, len(finest.sizes) - 1)} or less.",
        )
    budget.spend("profiles", int(split), "the engine")
    return _spread([group.range for group in groups], int(split))


def _spread(ranges: Sequence[Range], count: int) -> list[list[float]]:
    """Returns opts in equal factors from min to the opt that was asked for, and from there on towards max.

    The one asked for has the same place in every range, as they are run together: where the widest range has it.
    """
    widest = max(ranges, key=lambda bound: bound.max / bound.min)
    share = math.log(widest.opt / widest.min) / math.log(widest.max / widest.min)
    place = min(count - 1, math.floor(share * count + _FUZZ))
    return [
        [bound.opt * (bound.min / bound.opt) ** ((place - step) / place) for step in range(place)]
        + [bound.opt * (bound.max / bound.opt) ** (step / (count - place)) for step in range(count - place)]
        for bound in ranges
    ]


def _meeting(group: _Group, opts: Sequence[float]) -> list[_Part]:
    """Returns parts that meet at one size halfway between their opts, in factors."""
    low, high = group.ends
    sizes = [low[group.leader], *_cuts(group.sizes, opts), high[group.leader]]
    corners = [low, *(group.at(size, low, high) for size in sizes[1:-1]), high]
    parts = []
    for index, opt in enumerate(opts):
        inside = [n for n in group.sizes if sizes[index] <= n <= sizes[index + 1]]
        best = min(inside, key=lambda n: (abs(math.log(n / opt)), -n))
        parts.append((corners[index], group.at(best, low, high), corners[index + 1]))
    return parts


def _cuts(sizes: Sequence[int], opts: Sequence[float]) -> list[int]:
    """Returns the sizes nearest to halfway between the opts, no two of them the same."""
    cuts = [sizes[0]]
    for number in range(len(opts) - 1):
        goal = math.sqrt(opts[number] * opts[number + 1])
        # Room is left for the cuts that are still to come, and for the end.
        free = [n for n in sizes if n > cuts[-1]][: number + 1 - len(opts)]
        cuts.append(min(free, key=lambda n: abs(math.log(n / goal))))
    return cuts[1:]


def _nested(group: _Group, opts: Sequence[float]) -> list[_Part]:
    """Returns parts that all begin at the smallest sizes; the last has all, so that every combination is in one."""
    low, high = group.ends
    best = [group.at(group.nearest(opt), low, high) for opt in opts]
    parts = []
    for index, opt in enumerate(opts):
        larger = [other for other in opts[index + 1 :] if other > opt]
        corner = high
        if larger:
            cut = max(group.nearest(math.sqrt(opt * larger[0])), best[index][group.leader])
            corner = group.at(cut, best[index], high)
        parts.append((low, best[index], corner))
    return parts


def _split_text(groups: Sequence[_Group], parts: Sequence[Sequence[_Part]], *, meeting: bool) -> str:
    how = "they meet at one size" if meeting else "each begins at the smallest size, so every combination is in one"
    texts = "; ".join(
        f"{name} for {', '.join(str(best[name]) for _, best, _ in own)}"
        for group, own in zip(groups, parts, strict=True)
        for name in group.bounds
    )
    return (
        f"split into {len(parts[0])} profiles ({texts}; {how}): each further profile costs about as much build time as"
        " the first and makes the engine larger; device memory is that of the largest"
    )
