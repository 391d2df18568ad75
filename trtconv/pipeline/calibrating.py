"""Finds the ranges of a float model by samples: by several methods, with its channels as they are and equalised."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from trtconv.core.documents.calibration import KeptRanges, KeptSizes
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.quantize import CacheRecord, Calibration
from trtconv.core.documents.rewrite import Edit
from trtconv.core.frozen import frozen
from trtconv.core.requests.quantize import QuantizeRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.weight_file import WeightFile
from trtconv.pipeline.cached_scales import CachedScales, cached_scales
from trtconv.precision.quantize import cache
from trtconv.precision.quantize.calibrate import Statistics, calibrate, candidates
from trtconv.precision.quantize.equalize import equalize, find_links, linked_tensors, sizes_by_channel
from trtconv.precision.quantize.kinds import INT8
from trtconv.precision.quantize.layers import WeightedLayer
from trtconv.precision.quantize.measure import Reference
from trtconv.precision.quantize.metrics import Goal
from trtconv.precision.quantize.placement import Placement, measured, place_of
from trtconv.precision.quantize.samples import InputSamples
from trtconv.precision.quantize.weights import QuantizedWeights
from trtconv.precision.quantize.write import Ranges, quantized

ENOUGH, JUDGING, MOST_JUDGED = 4, 0.5, 16
"""Samples of calibration from which on a share of them judges the methods, the share, and how many do so at most."""


@frozen
class RangeChoice:
    """A float model, its layers to quantise, the ranges of their inputs, and how these were found."""

    model: OnnxModel
    edits: tuple[Edit, ...]
    layers: tuple[WeightedLayer, ...]
    ranges: Ranges
    calibration: Calibration
    lacking: Mapping[int, str] = dataclasses.field(default_factory=dict)
    cache: CacheRecord | None = None

    @property
    def error(self) -> float:
        """Of the best method, on samples by which the methods are compared."""
        return min(self.calibration.methods.values(), default=0.0)


@frozen
class FloatSource:
    """The model that is quantised, and where the weights of all that is made of it are.

    Args:
        model: As its file has it, its large weights moved.
        identity: Its file.
        target: What the result is for.
        file: Holds the weights.
        weights: The quantised ones.
        goal: What counts; None for the root mean square of the error.
    """

    model: OnnxModel
    identity: FileIdentity
    target: Target
    file: WeightFile
    weights: QuantizedWeights
    goal: Goal | None = None


def choose_ranges(
    request: QuantizeRequest,
    model: OnnxModel,
    layers: Sequence[WeightedLayer],
    samples: InputSamples,
    clock: Stopwatch,
    source: FloatSource,
) -> RangeChoice:
    """Calibrates the model as it is and with its channels brought to one size; takes what errs less.

    Where a calibration cache has the scales, these are taken.
    """
    quantizable = [layer for layer in layers if not layer.reason]
    if request.calibration is not None:
        return _as_given(cached_scales(request.calibration, source.model, model, quantizable), model)
    kind = source.weights.kind
    if not kind.inputs:
        unseen = Calibration(0, samples.source, (), "none: weights alone", methods={}, equalized=False, cached=False)
        return RangeChoice(model, (), tuple(quantizable), {}, unseen)
    plain = _Calibrating(request, model, samples, clock, source)
    choices = [plain.calibrated(quantizable)]
    equal = plain.equalized()
    if equal is not None:
        choices.append(equal.calibrated(quantizable))
    return min(choices, key=lambda choice: choice.error)


def _as_given(scales: CachedScales, model: OnnxModel) -> RangeChoice:
    method = f"cache of {scales.calibrator}"
    calibration = Calibration(0, scales.record.file, (), method, methods={}, equalized=False, cached=False)
    return RangeChoice(model, (), scales.layers, scales.ranges, calibration, scales.lacking, scales.record)


class _Calibrating:
    """One model being quantised."""

    def __init__(
        self, request: QuantizeRequest, model: OnnxModel, samples: InputSamples, clock: Stopwatch, source: FloatSource
    ) -> None:
        self._request = request
        self._source = source
        self._model = model
        self._samples = samples
        self._clock = clock
        self._edits: tuple[Edit, ...] = ()
        self._tell = functools.partial(clock.progress.phase, "sample")

    def equalized(self) -> _Calibrating | None:
        """Returns the same for a copy of the model with its channels brought to one size; None where none can be."""
        links = find_links(self._model.main)
        tensors = linked_tensors(links)
        if not tensors:
            return None
        key, sizes = self._entry(KeptSizes, tuple(tensors), "filled channels")
        with self._clock.stage(Stage.EQUALIZE):
            if sizes is None:
                sizes = KeptSizes(sizes_by_channel(self._model, tensors, self._samples, self._tell))
                cache.store(self._request.cache, key, sizes)
            other = _Calibrating(self._request, self._model.copy(), self._samples, self._clock, self._source)
            other._edits = equalize(other._model, links, sizes.sizes, self._source.file.store)
        return other if other._edits else None

    def calibrated(self, layers: Sequence[WeightedLayer]) -> RangeChoice:
        """Finds the ranges by each method that is asked for, and takes the best."""
        kind = self._source.weights.kind
        placement = place_of(kind, self._model.main, layers)
        by_index = {layer.index: layer for layer in layers}
        usable = tuple(by_index[index] for index in placement.layers)
        methods = candidates(self._request.method, self._request.percentile, kind.methods)
        key, entry = self._entry(KeptRanges, placement.tensors, (methods, bool(self._edits)))
        ranges = entry if entry is not None else self._calibrate(placement, methods)
        if entry is None:
            cache.store(self._request.cache, key, ranges)
        calibration = Calibration(
            samples=len(self._samples),
            source=self._samples.source,
            sizes=tuple(self._samples.sizes()),
            method=ranges.method,
            methods=ranges.errors,
            equalized=bool(self._edits),
            cached=entry is not None,
        )
        return RangeChoice(self._model, self._edits, usable, ranges.ranges, calibration)

    def _entry(self, kind: type[cache.Kept], tensors: Sequence[str], extra: object) -> tuple[str, cache.Kept | None]:
        """Returns the name under which what was found of some tensors is kept, and what is kept there."""
        request = self._request
        if request.cache is None:
            return "", None
        goal = self._source.goal
        counts = {} if goal is None else {"metric": goal.identity}
        if self._source.weights.kind is not INT8:
            counts |= {"kind": self._source.weights.kind.name}
        if request.attention:
            counts |= {"attention": "quantised"}
        settings = {"asked": extra, "target": str(self._source.target), **counts}
        key = cache.key_of(self._source.identity.sha256 or "", self._samples.digest(), tensors, settings)
        return key, cache.load(request.cache, key, kind, tensors)

    def _calibrate(self, placement: Placement, methods: Sequence[str]) -> KeptRanges:
        """Calibrates; several methods are judged by samples of which they have not seen any, which then join."""
        statistics = Statistics(methods)
        first, others = self._samples, self._samples[:0]
        if len(self._samples) >= ENOUGH:
            first, others = self._samples.parted(JUDGING)
        ranks: dict[str, tuple[float, float]] = {}
        with self._clock.stage(Stage.CALIBRATE):
            self._add(placement, first, statistics)
        if placement.tensors:
            with self._clock.stage(Stage.COMPARE_METHODS):
                ranks = self._ranks(placement, statistics, methods, others or first)
        with self._clock.stage(Stage.CALIBRATE):
            self._add(placement, others, statistics)
        best = min(ranks, key=lambda method: ranks[method]) if ranks else methods[0]
        return KeptRanges(best, {method: error for method, (error, _) in ranks.items()}, statistics.ranges(best))

    def _add(self, placement: Placement, samples: InputSamples, statistics: Statistics) -> None:
        if placement.tensors and len(samples):
            tensors = measured(self._model.main, placement)
            calibrate(self._model, tensors, samples, statistics, self._tell)

    def _ranks(
        self, placement: Placement, statistics: Statistics, methods: Sequence[str], samples: InputSamples
    ) -> dict[str, tuple[float, float]]:
        reference, weights = Reference(self._model, samples[:MOST_JUDGED], self._source.goal), self._source.weights
        return {
            method: reference.rank(quantized(self._model, placement, statistics.ranges(method), weights))
            for method in methods
        }
