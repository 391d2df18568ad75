"""Random sizes of a network's inputs."""

from __future__ import annotations

import numpy as np

from trtconv.core.dims import ShapeProfile
from trtconv.shapes.lattice import Sizes, first_faults

_TRIES = 64
"""Random combinations of sizes that are looked at for those that the network accepts."""


def accepted_points(sizes: Sizes, profile: ShapeProfile, seed: int) -> list[dict[str, int]]:
    """Draws different combinations of sizes that the network accepts, as far as shapes tell.

    Args:
        sizes: Of the network.
        profile: Within which.
        seed: Of the draw.

    Returns:
        Dimension to size, each combination once; none where no dimension ranges.
    """
    ranges = {name: profile.dims[name] for name in sizes.names if name in profile.dims}
    if len(ranges) < len(sizes.names) or all(r.min == r.max for r in ranges.values()):
        return []
    lattice = sizes.lattice({n: (r.min, r.max) for n, r in ranges.items()}, {n: r.opt for n, r in ranges.items()})
    random = np.random.default_rng(seed)

    def draw(name: str) -> int:
        valid = lattice.dims[name].valid if name in lattice.dims else None
        return int(random.choice(valid) if valid else random.integers(ranges[name].min, ranges[name].max + 1))

    points = [{name: draw(name) for name in ranges} for _ in range(_TRIES)]
    faults = first_faults(sizes.run(points).checks, len(points))
    accepted = [point for point, fault in zip(points, faults, strict=True) if fault is None]
    return [dict(items) for items in dict.fromkeys(tuple(point.items()) for point in accepted)]
