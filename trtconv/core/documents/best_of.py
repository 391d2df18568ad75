"""How far apart several builds of one network were (`build --best-of`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class BestOf(Document, keys="builds redraws us taken spread"):
    """The builds of one network, run whole and timed in turns.

    Args:
        us: For each build the microseconds of an inference with each optimization profile, at its opt; empty where the
            engine was not built or did not run.
        taken: Position of the build that was taken.
        redraws: How many of them, the last ones, have everything of the fastest before but copies and quantisers,
            which they measured anew.
    """

    us: tuple[tuple[float, ...], ...]
    taken: int
    redraws: int = 0

    @property
    def builds(self) -> int:
        """How many there were."""
        return len(self.us)

    @property
    def spread(self) -> float:
        """How far apart they are, the slowest over the fastest."""
        means = [typical(times) for times in self.us if times]
        return round(max(means) / min(means), 4) if means else 1.0

    def __str__(self) -> str:
        timed = ", ".join(" / ".join(f"{us:.1f}" for us in times) if times else "failed" for times in self.us)
        which = f"build {self.taken + 1} was taken"
        builds = f"{self.builds} builds"
        if self.redraws:
            builds += f" ({self.redraws} of them the fastest of the others with other copies)"
        return f"best of {builds}, {which}: {timed} us, the slowest {self.spread:.2f} times the fastest"


def typical(times: Sequence[float]) -> float:
    """Returns one number for the times with several profiles: their geometric mean, so that each counts alike."""
    if not times or not all(time > 0 for time in times):
        return math.inf
    # `statistics.geometric_mean` is the same, and takes as long to load as all reports.
    return math.exp(math.fsum(map(math.log, times)) / len(times))
