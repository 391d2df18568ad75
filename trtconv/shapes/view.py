"""What rules on sizes see: a lattice, and the profiles that were asked for."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.lattice import LatticeRecord
from trtconv.core.documents.memory import Activations
from trtconv.core.named_sizes import KnownSizes
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Check, SizeLattice, Trial, first_faults, sizes_of
from trtconv.shapes.memory import activations
from trtconv.shapes.model_shapes import known_sizes
from trtconv.shapes.traced.search import baked_in

_PICKS = ("min", "opt", "max")


class SizesView:
    """A model with the profiles that it is to be built for.

    Args:
        model: The model; must not change while the view is in use.
        profiles: At least one.
    """

    def __init__(self, model: OnnxModel, profiles: Sequence[ShapeProfile]) -> None:
        self.model = model
        self.sizes = sizes_of(model)
        self.profiles = tuple(profiles)

    @functools.cached_property
    def is_baked(self) -> bool:
        """Whether it is the sizes of an exporter's example that the model accepts."""
        return bool(baked_in(self.model).refusals())

    @functools.cached_property
    def points(self) -> list[tuple[int, str, dict[str, int]]]:
        """Number of the profile, "min", "opt" or "max", and the free dimensions' sizes."""
        return [
            (number, pick, {name: int(getattr(profile.dims[name], pick)) for name in self.sizes.names})
            for number, profile in enumerate(self.profiles)
            for pick in _PICKS
        ]

    @functools.cached_property
    def faults(self) -> list[Check | None]:
        """For each of `points` the first condition of a node that it does not meet."""
        return first_faults(self.trial.checks, len(self.points))

    def fault_of(self, row: int, name: str) -> Check:
        """Returns the first condition on a dimension that one of `points` does not meet; any, where none is on it."""
        bit = 1 << self.sizes.names.index(name)
        mine = (c for c in self.trial.checks if c.mask & bit and not c.holds[row])
        fault = next(mine, self.faults[row])
        assert fault is not None
        return fault

    @functools.cached_property
    def trial(self) -> Trial:
        """The run at `points`."""
        return self.sizes.run([sizes for _, _, sizes in self.points], keep=True)

    @functools.cached_property
    def memory(self) -> list[Activations]:
        """What the activations take at the max of each profile."""
        peaks = activations(self.sizes, [sizes for _, _, sizes in self.points], self.trial)
        return [peak for peak, (_, pick, _) in zip(peaks, self.points, strict=True) if pick == "max"]

    def tensor_sizes(self, profiles: Sequence[ShapeProfile]) -> KnownSizes:
        """Returns the shapes of the model's tensors at opt of profiles, which may be other ones."""
        return known_sizes(self.sizes, profiles)

    @property
    def record(self) -> LatticeRecord | None:
        """What a report says of the lattice; None where nothing is dynamic."""
        return self.lattice.record() if self.lattice.dims else None

    @functools.cached_property
    def lattice(self) -> SizeLattice:
        """The accepted sizes in the range of all profiles together."""
        spans = {
            name: (min(p.dims[name].min for p in self.profiles), max(p.dims[name].max for p in self.profiles))
            for name in self.sizes.names
        }
        best = {name: self.profiles[0].dims[name].opt for name in self.sizes.names}
        return self.sizes.lattice(spans, best, {name: {p[name] for _, _, p in self.points} for name in spans})

    def describe(self, number: int) -> str:
        """Returns " of profile 2" where there are several."""
        return f" of profile {number + 1}" if len(self.profiles) > 1 else ""
