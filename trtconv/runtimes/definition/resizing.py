"""Resize to the nearest elements, and of axes that are counted from the end.

ONNX Runtime computes places by a scale in float32, also where sizes are asked for: from 28 elements to 62 it takes the
upper one of two that are equally near, where the lower one is asked for, and by tf_half_pixel_for_nn from 20 to 6 the
fourteenth for what lies on the fifteenth. Here they are fractions of the sizes. By scales the neighbour below of
tf_half_pixel_for_nn is taken for the nearest one of half_pixel, which it is.

ONNX Runtime before 1.27 takes the scales of axes that are counted from the end from memory that nobody has written: it
refuses the node, resizes it otherwise, or ends its process.

Source: ONNX operator Resize, opset 18.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import onnx
from onnx import helper

from trtconv.graph.attributes import readable
from trtconv.graph.resolve import resolved
from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing

_SIZES = 3
_HALF = Fraction(1, 2)
_PLACES: Mapping[str, Callable[[int, int, int], Fraction]] = {
    "align_corners": lambda place, old, new: Fraction(place * (old - 1), max(new - 1, 1)),
    "asymmetric": lambda place, old, new: Fraction(place * old, new),
    "half_pixel": lambda place, old, new: Fraction((2 * place + 1) * old, 2 * new) - _HALF,
    "pytorch_half_pixel": lambda place, old, new: (
        Fraction((2 * place + 1) * old, 2 * new) - _HALF if new > 1 else Fraction(0)
    ),
    "tf_half_pixel_for_nn": lambda place, old, new: Fraction((2 * place + 1) * old, 2 * new),
}
"""Where in the input an element lies, by its number and the sizes before and after, as ONNX defines it."""
_ROUNDINGS: Mapping[str, Callable[[Fraction], int]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "round_prefer_ceil": lambda place: math.floor(place + _HALF),
    "round_prefer_floor": lambda place: math.ceil(place - _HALF),
}


def write_resize(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a Resize whose axes are counted from the front, and whose nearest elements are those of the definition."""
    node = scope.columns.nodes[index]
    attributes = {entry.name: readable(entry) for entry in node.attribute}
    changes = {**_front_axes(scope, node, attributes), **_nearest_below(attributes)}
    if _write_nearest(scope, node, {**attributes, **changes}, writing):
        return True
    if not changes:
        return False
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(attribute for attribute in node.attribute if attribute.name not in changes)
    copy.attribute.extend(helper.make_attribute(name, value) for name, value in changes.items())
    writing.nodes.append(copy)
    return True


def _write_nearest(scope: Scope, node: onnx.NodeProto, attributes: Mapping[str, Any], writing: Writing) -> bool:
    """Writes a nearest Resize to sizes as Gathers, where a place lies on a border between two elements."""
    coordinates = attributes.get("coordinate_transformation_mode", "half_pixel")
    if attributes.get("mode", "nearest") != "nearest" or coordinates not in _PLACES:
        return False
    rounding = _ROUNDINGS[attributes.get("nearest_mode", "round_prefer_floor")]
    places = {
        axis: [_PLACES[coordinates](place, old, new) for place in range(new)]
        for axis, (old, new) in _changes_of_size(scope, node, attributes, writing).items()
    }
    # Rounded is a place or twice of it: only on these borders digits decide.
    if not any((2 * place).denominator == 1 for row in places.values() for place in row):
        return False
    tensor, shape = node.input[0], scope.shape(node.input[0]) or ()
    for axis, row in places.items():
        last = (shape[axis] or 1) - 1
        rows = [min(max(rounding(place), 0), last) for place in row]
        tensor = writing.compute("Gather", tensor, writing.constant(rows), axis=axis)
    writing.finish()
    return True


def _changes_of_size(
    scope: Scope, node: onnx.NodeProto, attributes: Mapping[str, Any], writing: Writing
) -> dict[int, tuple[int, int]]:
    """Returns of each axis that changes its sizes before and after; of none where not all are known and asked for."""
    stretches = attributes.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    shape = scope.shape(node.input[0])
    if shape is None or not stretches or not "".join(node.input[_SIZES:]):
        return {}
    sizes = resolved(scope, node.input[_SIZES], [helper.make_opsetid("", writing.opset)])
    numbers = attributes.get("axes", range(len(shape)))
    if sizes is None or any(shape[axis] is None for axis in numbers):
        return {}
    pairs = {axis: (shape[axis] or 0, int(size)) for axis, size in zip(numbers, sizes.reshape(-1), strict=True)}
    return {axis: (old, new) for axis, (old, new) in pairs.items() if old != new and old and new}


def _front_axes(scope: Scope, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> dict[str, Any]:
    axes = attributes.get("axes", ())
    if min(axes, default=0) >= 0 or (shape := scope.shape(node.input[0])) is None:
        return {}
    return {"axes": [axis % len(shape) for axis in axes]}


def _nearest_below(attributes: Mapping[str, Any]) -> dict[str, Any]:
    is_below = attributes.get("mode", "nearest") == "nearest" and attributes.get("nearest_mode") == "floor"
    if not is_below or attributes.get("coordinate_transformation_mode") != "tf_half_pixel_for_nn":
        return {}
    return {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
