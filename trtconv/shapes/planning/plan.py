"""The profiles for a table of requests; see `trtconv plan-profiles`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.core.bounds import make_profile, shapes_with_sizes
from trtconv.core.dims import Range, Shape, ShapeProfile
from trtconv.core.documents.traffic import PlanCost, PlannedProfile, PlannedRun
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.memory import activations
from trtconv.shapes.planning.choosing import choices
from trtconv.shapes.planning.demand import Demand
from trtconv.shapes.planning.timing import Timing
from trtconv.shapes.split import AUTO, divide

_WORTH = 0.01
"""What a further profile has to save, as a share of the cost of one profile: it costs build time and engine size."""

Point = Mapping[str, int]
Amounts = NDArray[np.float64]


@frozen
class Division:
    """Requests divided among profiles.

    Args:
        profiles: The profiles, as a build takes them.
        planned: What documents say of each.
        runs: The sizes at which requests run, the cheapest first.
        cost: Of all requests, beside others.
        memory: Bytes of the model and of a context of each profile.
    """

    profiles: tuple[ShapeProfile, ...]
    planned: tuple[PlannedProfile, ...]
    runs: tuple[PlannedRun, ...]
    cost: PlanCost
    memory: int


class Planner:
    """Finds the profiles that cost least.

    Args:
        model: The model.
        sizes: Its sizes.
        demand: What is asked of it.
        timing: What an inference takes.
    """

    def __init__(self, model: OnnxModel, sizes: Sizes, demand: Demand, timing: Timing) -> None:
        self._model, self._sizes, self._demand, self._timing = model, sizes, demand, timing
        self._points = demand.points
        self._work = timing.work(self._points)
        self._times = timing.times(self._work)
        # What one request of each size (row) takes in a profile for another (column), and padded to that.
        self._away = timing.away(self._work, self._work)
        padded = np.where(demand.fits, self._times[None, :], np.inf)
        self._costs = demand.counts[:, None] * np.minimum(self._away, padded)

    def divided(self, most: int, memory: int | None) -> Division:
        """Returns the division into as few profiles as are worth it.

        Args:
            most: How many profiles at most.
            memory: Bytes for the model and a context of each profile; None: any.

        Raises:
            InputError: One profile takes more memory already, or a corner of a profile is no size of the network.
        """
        alone, *more = choices(self._costs, self._work, most)
        one = lowest = self._total(alone)
        best = alone
        for opts in more:
            total = self._total(opts) + _WORTH * one * (len(opts) - 1)
            if total < lowest and self._fits(opts, memory):
                best, lowest = opts, total
        if not self._fits(best, memory):
            need = self._memory(self._boxes(best))
            raise InputError(
                f"one profile takes about {need} bytes of GPU memory with the model, and there are {memory}",
                "Give more --gpu-memory, or leave the largest sizes out.",
            )
        return self._division(sorted(best, key=lambda opt: float(self._work[opt])), one, alone[0])

    def _total(self, opts: Sequence[int]) -> float:
        return float(self._costs[:, list(opts)].min(axis=1).sum())

    def _fits(self, opts: tuple[int, ...], memory: int | None) -> bool:
        return memory is None or self._memory(self._boxes(opts)) <= memory

    def _memory(self, boxes: Sequence[ShapeProfile]) -> int:
        return self._model.nbytes + sum(
            peak.bytes for peak in activations(self._sizes, [_at_max(b, self._sizes) for b in boxes])
        )

    def _assigned(self, opts: Sequence[int]) -> list[tuple[int, int]]:
        """Returns for each size of requests the opt, by its place among them, and the size at which they run."""
        pairs = []
        for row, place in enumerate(self._costs[:, list(opts)].argmin(axis=1).tolist()):
            opt = opts[place]
            pads = self._demand.fits[row, opt] and self._times[opt] < self._away[row, opt]
            pairs.append((place, opt if pads else row))
        return pairs

    def _boxes(self, opts: Sequence[int]) -> list[ShapeProfile]:
        """Returns the profiles: around the sizes that run in each."""
        members: list[set[int]] = [{opt} for opt in opts]
        for place, run in self._assigned(opts):
            members[place].add(run)
        return [
            self._box([self._points[run] for run in sorted(runs)], self._points[opt])
            for runs, opt in zip(members, opts, strict=True)
        ]

    def _box(self, points: Sequence[Point], opt: Point) -> ShapeProfile:
        low, high = ({name: pick(point[name] for point in points) for name in opt} for pick in (min, max))
        low, high = self._demand.rounded(low, up=False), self._demand.rounded(high, up=True)
        return make_profile(self._model.inputs, {name: Range(low[name], opt[name], high[name]) for name in opt})

    def _division(self, opts: Sequence[int], one: float, alone: int) -> Division:
        boxes = self._boxes(opts)
        runs = self._runs(opts)
        needs = activations(self._sizes, [_at_max(box, self._sizes) for box in boxes])
        planned = []
        for index, (box, memory) in enumerate(zip(boxes, needs, strict=True)):
            own = [run for run in runs if run.profile == index]
            spent = sum(run.requests * run.time for run in own) / one
            requests = sum(run.requests for run in own)
            planned.append(PlannedProfile(dict(box.dims), requests, round(spent, 4), memory.bytes))
        total = sum(run.requests * run.time for run in runs)
        auto, count = self._auto(alone)
        cost = PlanCost(
            round(total / one, 4),
            1.0,
            round(auto / one, 4),
            count,
            self._timing.unit,
            round(total / float(self._demand.counts.sum()), 3),
        )
        return Division(
            tuple(boxes), tuple(planned), runs, cost, self._model.nbytes + sum(memory.bytes for memory in needs)
        )

    def _runs(self, opts: Sequence[int]) -> tuple[PlannedRun, ...]:
        """Returns the sizes at which requests run, the cheapest first; each request runs at the first that fits."""
        assigned = sorted({(self._time(run, opts[place]), place, run) for place, run in self._assigned(opts)})
        requests, padded = [0.0] * len(assigned), [0.0] * len(assigned)
        sizes = [run for _, _, run in assigned]
        fits = self._demand.fits[:, sizes] | (np.arange(len(self._points))[:, None] == sizes)
        for row, at in enumerate(fits.argmax(axis=1)):
            requests[at] += float(self._demand.counts[row])
            padded[at] += self._demand.padded(row, sizes[at])
        results = []
        for (time, place, run), count, more in zip(assigned, requests, padded, strict=True):
            if count:
                point = self._points[run]
                results.append(PlannedRun(place, dict(point), self._shapes(point), count, more, round(time, 3)))
        return tuple(results)

    def _time(self, run: int, opt: int) -> float:
        return float(self._away[run, opt])

    def _shapes(self, point: Point) -> dict[str, Shape]:
        return shapes_with_sizes(self._model.inputs, point)

    def _auto(self, opt: int) -> tuple[float, int]:
        """Returns what the requests cost in the profiles of `--split auto`, at best, and how many these are."""
        whole = self._box(self._points, self._points[opt])
        profiles, _ = divide(self._model.inputs, whole, self._demand.lattice, AUTO)
        opts = [{name: profile.dims[name].opt for name in self._points[0]} for profile in profiles]
        costs = self._timing.away(self._work, self._timing.work(opts))
        for column, profile in enumerate(profiles):
            inside = [
                all(profile.dims[n].min <= size <= profile.dims[n].max for n, size in p.items()) for p in self._points
            ]
            costs[~np.array(inside), column] = np.inf
        return float((self._demand.counts * costs.min(axis=1)).sum()), len(profiles)


def _at_max(profile: ShapeProfile, sizes: Sizes) -> dict[str, int]:
    return {name: profile.dims[name].max for name in sizes.names}
