"""Which layers a calibration cache of TensorRT has the scales of, and what of it fits the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trtconv.core.documents.quantize import CacheRecord, OtherScale
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.precision.quantize.layers import WeightedLayer
from trtconv.precision.quantize.placement import Placement, place
from trtconv.precision.quantize.scales_of_cache import CalibrationCache, read_cache
from trtconv.precision.quantize.write import Ranges, scales


@frozen
class CachedScales:
    """What a cache says of a model.

    Args:
        calibrator: The kind of calibrator that wrote it.
        layers: The layers that it has all scales of.
        lacking: Positions of the others to the first tensor that has none.
        ranges: Of every tensor that is quantised.
        record: What a report says of it.
    """

    calibrator: str
    layers: tuple[WeightedLayer, ...]
    lacking: dict[int, str]
    ranges: Ranges
    record: CacheRecord


def cached_scales(path: Path, original: OnnxModel, model: OnnxModel, layers: Sequence[WeightedLayer]) -> CachedScales:
    """Looks up the scales of all layers that can be quantised.

    Args:
        path: The cache.
        original: The model as it is in its file, whose names the cache has.
        model: The same as it will be quantised.
        layers: Its layers that can be quantised.

    Raises:
        InputError: The file is no cache, or has the scales of no layer.
    """
    cache = read_cache(path)
    cached_ranges, scope = cache.ranges, model.main
    usable, lacking = list(layers), dict[int, str]()
    placement = place(scope, usable)
    while missing := _missing(placement, cached_ranges):
        spared = _in_need(scope, usable, missing)
        lacking |= {layer.index: next((x for x in layer.read if x in missing), missing[0]) for layer in spared}
        usable = [layer for layer in usable if layer not in spared]
        placement = place(scope, usable)
    if not placement.layers:
        first = next(iter(cache.scales), None)
        raise InputError(
            f"{path} has the scales of no layer of {original.path.name}: it is of another model, or names have changed",
            f"Its first tensor is {first!r}; trtconv inspect names those of the model." if first else "It is empty.",
        )
    ranges = _filled(placement, cached_ranges)
    layers_kept = tuple(layer for layer in usable if layer.index in placement.layers)
    return CachedScales(
        cache.calibrator, layers_kept, lacking, ranges, _record(path, cache, original, placement, ranges)
    )


def _missing(placement: Placement, ranges: Ranges) -> list[str]:
    """Returns the tensors for which there is no scale, nor for any that shares one with them."""
    groups = {first for tensor, first in placement.shared.items() if tensor in ranges}
    return [tensor for tensor in placement.tensors if placement.shared[tensor] not in groups]


def _in_need(scope: Scope, layers: Sequence[WeightedLayer], missing: Sequence[str]) -> list[WeightedLayer]:
    """Returns the layers because of which tensors are quantised that have no scale."""
    direct = [layer for layer in layers if not set(missing).isdisjoint(layer.read)]
    if direct:
        return direct
    # What is only moved, or added to a result, is quantised for a layer further on.
    alone = [
        layer
        for layer in layers
        if not set(missing) <= set(place(scope, [other for other in layers if other is not layer]).tensors)
    ]
    return alone or list(layers)


def _filled(placement: Placement, ranges: Ranges) -> dict[str, float]:
    """Returns the ranges of all tensors; those without one have that of what they share a scale with."""
    widest: dict[str, float] = {}
    for tensor, first in placement.shared.items():
        widest[first] = max(widest.get(first, 0.0), ranges.get(tensor, 0.0))
    return {tensor: ranges.get(tensor, widest[first]) for tensor, first in placement.shared.items()}


def _record(
    path: Path, cache: CalibrationCache, original: OnnxModel, placement: Placement, ranges: Ranges
) -> CacheRecord:
    columns = original.main.columns
    names = {spec.name for spec in original.inputs} | {name for outputs in columns.outputs for name in outputs}
    by_tensor = scales(placement, ranges)
    others = (
        OtherScale(tensor, cache.scales[tensor], float(scale))
        for tensor, scale in by_tensor.items()
        if tensor in cache.scales and float(scale) != cache.scales[tensor]
    )
    return CacheRecord(
        str(path),
        len(cache.scales),
        sum(tensor in cache.scales for tensor in by_tensor),
        tuple(name for name in cache.scales if name not in names),
        tuple(others),
    )
