"""Sizes at which the same of the user's code runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trtconv.core.frozen import frozen
from trtconv.exporter.sizing.grid import Grid
from trtconv.exporter.sizing.guards import Guard

Sizes = Mapping[str, int]


@frozen
class Region:
    """Sizes at which the same code runs.

    Args:
        guards: What Python asks of the sizes there, and is so.
        places: Symbol to the dimension that it stands for.
        refused: Whether the module refuses these sizes.
        samples: Some of them, the one nearest to the example first.
    """

    guards: tuple[Guard, ...]
    places: Mapping[str, str]
    refused: bool
    samples: tuple[Sizes, ...] = ()

    def takes(self, sizes: Sizes) -> bool:
        """Whether sizes are in the region."""
        return self.parting(sizes) is None

    def parting(self, sizes: Sizes) -> Guard | None:
        """Returns the first guard that does not hold for some sizes."""
        values = {symbol: sizes[name] for symbol, name in self.places.items()}
        return next((guard for guard in self.guards if not guard.holds(values)), None)

    def mask(self, grid: Grid) -> NDArray[np.bool_]:
        """Returns which sizes of a grid are in the region."""
        values = {symbol: grid.values[name] for symbol, name in self.places.items()}
        inside = np.ones(grid.shape, dtype=bool)
        for guard in self.guards:
            inside &= guard.truth(values)
        return inside
