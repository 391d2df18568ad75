"""How far a quantised network is from the float one, as a whole and layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.documents.quantize import Distance
from trtconv.graph.model import OnnxModel
from trtconv.precision.quantize.sessions import Probe

Feeds = Mapping[str, NDArray[Any]]
_KEPT_BYTES = 1 << 26
"""Of inner tensors, before the other network is loaded."""


class _Squares:
    """Sums over all samples, in float64."""

    def __init__(self) -> None:
        self._difference = self._expected = self._got = self._product = 0.0
        self._discrete = False

    def add(self, expected: NDArray[Any], got: NDArray[Any]) -> None:
        if expected.size != got.size:
            # As many as a NonZero finds, for one, depends on the values.
            self._difference = math.inf
            return
        expected, got = expected.reshape(-1), got.reshape(-1)
        if expected.dtype.kind != "f":
            self._discrete = True
            expected, got = np.ones(expected.shape), np.asarray(expected == got, dtype=np.float64)
        a, b = expected.astype(np.float64), got.astype(np.float64)
        self._difference += float(np.square(a - b).sum())
        self._expected += float(np.square(a).sum())
        self._got += float(np.square(b).sum())
        self._product += float((a * b).sum())

    def distance(self) -> Distance:
        if not self._expected:
            return Distance(0.0, 1.0) if not self._difference else Distance(math.inf, 0.0)
        ratio = self._difference / self._expected
        length = math.sqrt(self._expected * self._got)
        return Distance(ratio if self._discrete else math.sqrt(ratio), self._product / length if length else 0.0)


class Reference:
    """Values of the float network for some samples.

    Its outputs are kept, so that many quantised networks can be held to them; samples are made again each time.

    Args:
        model: The float model.
        samples: Inputs.
    """

    def __init__(self, model: OnnxModel, samples: Sequence[Feeds]) -> None:
        self._model = model
        self.samples = samples
        probe = Probe(model, model.outputs)
        self._expected = [probe.run(feeds) for feeds in self.samples]

    def distances(self, other: OnnxModel) -> dict[str, Distance]:
        """Returns output to how far another network's is from the float one."""
        probe = Probe(other, other.outputs)
        return self.distances_of(probe.run(feeds) for feeds in self.samples)

    def distances_of(self, results: Iterable[Feeds]) -> dict[str, Distance]:
        """Returns output to how far values for all samples, in their order, are from the float network's."""
        sums = {name: _Squares() for name in self._model.outputs}
        for expected, got in zip(self._expected, results, strict=True):
            _add(sums, expected, got)
        return {name: each.distance() for name, each in sums.items()}

    def error(self, other: OnnxModel) -> float:
        """Returns the largest rms of the outputs."""
        return worst(self.distances(other))

    def inside(self, other: OnnxModel, tensors: Sequence[str]) -> dict[str, Distance]:
        """Returns inner tensor to how far another network's is from the float one."""
        sums = {name: _Squares() for name in tensors}
        done = 0
        while done < len(self.samples):
            expected = self._some(tensors, done)
            # Only now: of the two networks, which may be large, one is loaded at a time.
            probe = Probe(other, tensors)
            for number, values in enumerate(expected, start=done):
                _add(sums, values, probe.run(self.samples[number]))
            done += len(expected)
        return {name: each.distance() for name, each in sums.items()}

    def _some(self, tensors: Sequence[str], begin: int) -> list[Feeds]:
        """Returns inner tensors for some samples from one on: at least one, and as many as may be kept."""
        probe = Probe(self._model, tensors)
        kept: list[Feeds] = []
        size = 0
        while begin + len(kept) < len(self.samples) and (not kept or size < _KEPT_BYTES):
            kept.append(probe.run(self.samples[begin + len(kept)]))
            size += sum(values.nbytes for values in kept[-1].values())
        return kept


def worst(distances: Mapping[str, Distance]) -> float:
    """Returns the largest rms; infinite where one is no number."""
    return max((math.inf if math.isnan(each.rms) else each.rms for each in distances.values()), default=0.0)


def _add(sums: Mapping[str, _Squares], expected: Mapping[str, NDArray[Any]], got: Mapping[str, NDArray[Any]]) -> None:
    for name, each in sums.items():
        each.add(expected[name], got[name])
