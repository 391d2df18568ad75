"""Resize of axes that are counted from the end, and to the neighbours below of tf_half_pixel_for_nn.

ONNX Runtime before 1.27 takes the scales of such axes from memory that nobody has written: it refuses the node, resizes
it otherwise, or ends its process. The places of tf_half_pixel_for_nn it computes by a scale in float32: from 20
elements to 6 the fifth lies on 15, and it takes 14. The neighbour below is the nearest one of half_pixel, which it
finds rightly.

Source: ONNX operator Resize, opset 18.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import helper

from trtconv.graph.scope import Scope
from trtconv.runtimes.definition.writing import Writing


def write_resize(scope: Scope, index: int, writing: Writing) -> bool:
    """Writes a Resize whose axes are counted from the front, and whose neighbours are found rightly."""
    node = scope.columns.nodes[index]
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    changes = {**_front_axes(scope, node, attributes), **_nearest_below(attributes)}
    if not changes:
        return False
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(attribute for attribute in node.attribute if attribute.name not in changes)
    copy.attribute.extend(helper.make_attribute(name, value) for name, value in changes.items())
    writing.nodes.append(copy)
    return True


def _front_axes(scope: Scope, node: onnx.NodeProto, attributes: Mapping[str, Any]) -> dict[str, Any]:
    axes = attributes.get("axes", ())
    if min(axes, default=0) >= 0 or (shape := scope.shape(node.input[0])) is None:
        return {}
    return {"axes": [axis % len(shape) for axis in axes]}


def _nearest_below(attributes: Mapping[str, Any]) -> dict[str, Any]:
    is_below = attributes.get("mode", b"nearest") == b"nearest" and attributes.get("nearest_mode") == b"floor"
    if not is_below or attributes.get("coordinate_transformation_mode") != b"tf_half_pixel_for_nn":
        return {}
    return {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
