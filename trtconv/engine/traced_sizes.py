"""Sizes that an exporter fixed in a model: an engine whose build freed them can be compared with it at these alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from trtconv.core.dim_flags import quoted
from trtconv.core.dims import Shape, ShapeProfile
from trtconv.engine.cases import Case, shapes_of_point
from trtconv.engine.runs import CannotRun, Runs
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.inputs import Feeds
from trtconv.shapes.traced.search import baked_in

TRACED = "traced"
"""What the size is called that only such a model is compared at."""


class TracedSizes:
    """The sizes that were fixed in a model; looked for where it does not run, which takes seconds.

    Args:
        model: What results are compared with.
        runs: What runs it.
    """

    def __init__(self, model: OnnxModel, runs: Runs) -> None:
        self._model = model
        self._runs = runs
        self._is_met = False

    def run(self, profile: int, feeds: Feeds) -> Feeds:
        """Runs the model.

        Raises:
            CannotRun: It does not run; where that is for a size that was fixed, the message says which.
        """
        try:
            return self._runs.run(profile, feeds)
        except CannotRun as error:
            why = self._why({name: tuple(values.shape) for name, values in feeds.items()})
            if not why:
                raise
            raise CannotRun(why) from error

    def cases(self, profiles: Sequence[ShapeProfile], seed: int) -> Iterator[Case]:
        """Yields for each profile the sizes at which the model runs, where it does not at all that were asked for."""
        for index, profile in enumerate(profiles if self._is_met else ()):
            ranges = profile.dims
            if all(name in ranges and ranges[name].min <= n <= ranges[name].max for name, n in self.fixed.items()):
                point = {**{name: bounds.opt for name, bounds in ranges.items()}, **self.fixed}
                yield Case(index, TRACED, shapes_of_point(self._model, profile, point), seed)

    @functools.cached_property
    def fixed(self) -> Mapping[str, int]:
        """Dimension to the only size that the model takes of it; empty where build does not free them."""
        baked = baked_in(self._model)
        example = next(iter(baked.examples()), None)
        if example is None or baked.refusals():
            return {}
        point = example.point
        return {name: n for name, n in point.items() if not baked.accepted([{**point, name: n * k} for k in (2, 3)])}

    def _why(self, shapes: Mapping[str, Shape]) -> str:
        """Returns why the model does not run at some shapes; empty where it is not for a size that was fixed."""
        sizes_of_dims = {
            dim: shapes[spec.name][axis]
            for spec in self._model.inputs
            for axis, dim in enumerate(spec.dims)
            if isinstance(dim, str)
        }
        if all(sizes_of_dims.get(name) == size for name, size in self.fixed.items()):
            return ""
        self._is_met = True
        baked = baked_in(self._model)
        repaired = [target.node for target in baked.targets()] + [scaling.node for scaling in baked.scalings()]
        node = next((repair.label for repair in repaired), "a node")
        sizes = ", ".join(f"{name} {size}" for name, size in self.fixed.items())
        alone = " ".join(f"--dim {quoted(name)}={size}" for name, size in self.fixed.items())
        return (
            f"{self._model.path.name} itself runs at {sizes} alone, that of the exporter's example in {node}, which "
            f"build freed; export it again with dynamic shapes to have others compared, or compare that alone: {alone}"
        )
