"""Resize and grid sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from trtconv.graph.arrays import Array
from trtconv.graph.interpolation import ResizedAxis, cubic, divides_exactly, in_float32
from trtconv.runtimes.tensorrt.readback.call import Call, Kernel
from trtconv.runtimes.tensorrt.readback.records import NotProven
from trtconv.runtimes.tensorrt.readback.types import wide

_PRECISION = 1e-6
"""Of places, as float32 has them."""
_ROUNDED: dict[str, Callable[[Array], Array]] = {
    "HALF_UP": lambda x: np.floor(x + 0.5),
    "HALF_DOWN": lambda x: np.ceil(x - 0.5),
    "FLOOR": np.floor,
    "CEIL": np.ceil,
}


def _resize(call: Call) -> Sequence[Array]:
    values = wide(call.input(0))
    sizes, scales = _target(call, values.shape)
    for axis, (old, new, scale) in enumerate(zip(values.shape, sizes, scales, strict=True)):
        if old == new and scale == 1:
            continue
        places = _places(call, old, new, scale)
        if call["resize_mode"] == "NEAREST":
            _require_clear(call, ResizedAxis(old, new, scale), places)
        values = _along(values, axis, places, call)
    return (values,)


def _target(call: Call, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Returns the sizes, and by what each axis grows; given scales count, not what sizes they lead to."""
    target = call.ints(1)
    if target is None and call["shape"]:
        target = call["shape"]
    if target is not None:
        return tuple(target), tuple(new / old if old else 1.0 for old, new in zip(shape, target, strict=True))
    scales = call["scales"]
    if not scales:
        raise NotProven("neither its sizes nor its scales can be read")
    # The scale is a float32: what it was as a decimal must not be lost to rounding down.
    sizes = tuple(math.floor(np.float32(old) * np.float32(scale)) for old, scale in zip(shape, scales, strict=True))
    return sizes, tuple(scales)


def _places(call: Call, old: int, new: int, scale: float) -> Array:
    """Returns where on the old axis each element of the new one lies."""
    spots = np.arange(new, dtype=np.float64)
    how = call["coordinate_transformation"]
    if new == 1 and call["selector_for_single_pixel"] == "UPPER":
        return np.zeros(1)
    if how == "ASYMMETRIC":
        return spots / scale
    if how == "HALF_PIXEL":
        return (spots + 0.5) / scale - 0.5
    if how == "ALIGN_CORNERS":
        return spots * ((old - 1) / (new - 1)) if new > 1 else np.zeros(1)
    raise NotProven(f"{how} is not known")


def _require_clear(call: Call, axis: ResizedAxis, places: Array) -> None:
    """Raises `NotProven` where a place lies halfway between two elements, by a scale that no float divides by exactly,
    or so near to the border between two that float32 may compute it as beyond.

    TensorRT 8.6 was seen to take the lower one of 2.5 rounded up, from 6 elements to 13, and the upper one of 3.5, from
    8 to 17. It multiplies with the reciprocal of the scale: by 3 it takes the second element for the second of
    half_pixel rounded up, which lies on the first.
    """
    how, rounding = call["coordinate_transformation"], call["nearest_rounding"]
    if how != "ALIGN_CORNERS" and divides_exactly(axis.scale):
        return
    if how == "HALF_PIXEL" and rounding.startswith("HALF"):
        halfway = np.abs(places - np.floor(places) - 0.5) < _PRECISION * np.maximum(1, np.abs(places))
        if halfway.any():
            place = float(places[halfway][0])
            raise NotProven(f"its place {place:.1f} lies halfway between two elements, of which rounding takes either")
        return
    if not axis.count or (axis.count == 1 and call["selector_for_single_pixel"] == "UPPER"):
        return
    picked = _picked(call, axis.size, places)
    for computed in in_float32(axis, how.lower()):
        beyond = picked != _picked(call, axis.size, computed, settles=False)
        if beyond.any():
            place = float(places[beyond][0])
            raise NotProven(
                f"its place {place:.1f} lies on a border between two elements, of which rounding takes either"
            )


def _picked(call: Call, size: int, places: Array, *, settles: bool = True) -> Array:
    """Returns the elements that places are rounded to; those that lie on a border to within float32 as if on it."""
    near = np.rint(places * 2) / 2
    is_near = np.abs(places - near) < _PRECISION * np.maximum(1, np.abs(places))
    settled = np.where(is_near, near, places) if settles else places
    return np.clip(_ROUNDED[call["nearest_rounding"]](settled), 0, size - 1).astype(np.int64)


def _along(values: Array, axis: int, places: Array, call: Call) -> Array:
    old, mode = values.shape[axis], call["resize_mode"]
    if mode == "NEAREST":
        return values.take(_picked(call, old, places), axis)
    first = np.floor(places)
    part = places - first
    if mode == "LINEAR":
        taps = [(0, 1 - part), (1, part)]
    elif mode == "CUBIC":
        taps = [(offset, cubic(part - offset, call["cubic_coeff"])) for offset in (-1, 0, 1, 2)]
    else:
        raise NotProven(f"{mode} is not known")
    return _weighted(values, axis, first, taps, call["exclude_outside"])


def _weighted(values: Array, axis: int, first: Array, taps: Sequence[tuple[int, Array]], excluded: bool) -> Array:
    old = values.shape[axis]
    if excluded:
        inside = [((first + offset >= 0) & (first + offset < old)) * weight for offset, weight in taps]
        total = sum(inside)
        taps = [(offset, weight / total) for (offset, _), weight in zip(taps, inside, strict=True)]
    shape = [-1 if a == axis else 1 for a in range(values.ndim)]
    result = np.zeros((), np.float32)
    for offset, weight in taps:
        neighbours = values.take(np.clip(first + offset, 0, old - 1).astype(np.int64), axis)
        result = result + neighbours * weight.astype(np.float32).reshape(shape)
    return result


_MODES = {"LINEAR": "linear", "NEAREST": "nearest", "CUBIC": "cubic"}
_OUTSIDE = {"FILL": "zeros", "CLAMP": "border", "REFLECT": "reflection"}


def _grid_sample(call: Call) -> Sequence[Array]:
    mode, outside = _MODES.get(call["interpolation_mode"]), _OUTSIDE.get(call["sample_mode"])
    if mode is None or outside is None:
        raise NotProven(f"{call['interpolation_mode']} with {call['sample_mode']} is not known")
    corners = int(call["align_corners"])
    # Loaded only here: ONNX Runtime takes as much memory as many a network.
    from trtconv.runtimes.tensorrt.readback.grid_sample import grid_sample

    sampled = grid_sample(call.input(0), call.input(1), mode=mode, padding_mode=outside, align_corners=corners)
    return (sampled,)


KINDS: dict[str, Kernel] = {"RESIZE": _resize, "GRID_SAMPLE": _grid_sample}
