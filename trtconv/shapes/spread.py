"""Sizes of a model's tensors at many sizes of its inputs, by its size lattice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.core.dims import Range, ShapeProfile
from trtconv.shapes.lattice import Sizes, first_faults
from trtconv.shapes.size_values import SizeValues

_MOST_CELLS = 1 << 21
"""Sizes of the inputs times tensors that are looked at."""
_ROWS = 64, 4096
"""Fewest and most sizes of the inputs of one profile."""


class Spread:
    """What sizes tensors have within profiles, as far as shapes alone tell: at all sizes where these are few, else at
    many of each dimension with the others at min, opt and max, and at random ones.

    Args:
        sizes: Of the model.
        tensors: How many tensors it has, about.
        profiles: Sizes of its inputs.
        seed: Of what is random.
        values: Tells what the lattice does not follow; None: nothing does.

    Attributes:
        homes: For each combination of sizes that the model accepts, the position of its profile.
    """

    def __init__(
        self,
        sizes: Sizes,
        tensors: int,
        profiles: Sequence[ShapeProfile],
        seed: int,
        values: SizeValues | None = None,
    ) -> None:
        least, most = _ROWS
        rows = min(max(_MOST_CELLS // max(tensors * len(profiles), 1), least), most)
        points: list[dict[str, int]] = []
        homes: list[int] = []
        for number, profile in enumerate(profiles):
            ranges = {name: profile.dims[name] for name in sizes.names if name in profile.dims}
            own = _points(ranges, rows, seed) if ranges and len(ranges) == len(sizes.names) else []
            points += own
            homes += [number] * len(own)
        trial = sizes.run(points, keep=True, revise=values) if points else None
        faults = [] if trial is None else first_faults(trial.checks, len(points))
        self._tensors = {} if trial is None else {**trial.tensors, **(values.tensors if values else {})}
        self._count = len(points)
        self._accepted = np.array([row for row, fault in enumerate(faults) if fault is None], np.int64)
        self.homes: NDArray[np.int64] = np.array(homes, np.int64)[self._accepted]

    def column(self, name: str, axis: int) -> NDArray[np.int64] | None:
        """Returns the sizes of an axis of a tensor at each combination; None where shapes alone do not tell them."""
        tensor = self._tensors.get(name)
        if tensor is None or tensor.shape is None or axis >= tensor.rank or not len(self._accepted):
            return None
        num = tensor.shape[axis]
        if not num.is_known:
            return None
        values = np.broadcast_to(np.asarray(num.value, np.float64), self._count)[self._accepted]
        is_whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all() and (values >= 0).all())
        return values.astype(np.int64) if is_whole else None


def _points(ranges: dict[str, Range], rows: int, seed: int) -> list[dict[str, int]]:
    """Returns combinations of sizes, each once."""
    spans = {name: range(bound.min, bound.max + 1) for name, bound in ranges.items()}
    if math.prod(map(len, spans.values())) <= rows:
        return [dict(zip(spans, sizes, strict=True)) for sizes in itertools.product(*spans.values())]
    random = np.random.default_rng(seed)
    # A half for one dimension after the other, the rest for all of them at once.
    steps = max(rows // (2 * len(ranges) * 3), 2)
    points = [
        {other: getattr(bound, pick) for other, bound in ranges.items()} | {name: size}
        for pick in ("min", "opt", "max")
        for name, span in spans.items()
        for size in _some_of(span, steps)
    ]
    drawn = {
        name: random.integers(span.start, span.stop, max(rows - len(points), 0)).tolist()
        for name, span in spans.items()
    }
    points += [dict(zip(drawn, sizes, strict=True)) for sizes in zip(*drawn.values(), strict=True)]
    return [dict(items) for items in dict.fromkeys(tuple(point.items()) for point in points)]


def _some_of(span: range, count: int) -> list[int]:
    """Returns sizes of a span, its ends among them."""
    return [span[round(place)] for place in np.linspace(0, len(span) - 1, min(count, len(span)))]
