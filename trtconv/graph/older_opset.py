"""What a node is called in an older opset: the changes that write it there with the same meaning, or why none do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS

LOWERED = 17
"""The newest opset that TensorRT 8.6 knows."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "antialias": (0,),
    "keep_aspect_ratio_policy": (b"stretch",),
    "dilations": ([1], [1, 1], [1, 1, 1]),
    "allowzero": (0,),
    "saturate": (1,),
    "block_size": (0,),
    "output_dtype": (0,),
    "precision": (0,),
    "num_outputs": (),
    "stash_type": (1,),
}
"""Newer attributes, and the values that say what was so before there was the attribute."""
_NEWER_VALUES = {
    ("Resize", "coordinate_transformation_mode"): b"half_pixel_symmetric",
    ("Pad", "mode"): b"wrap",
    ("ScatterElements", "reduction"): b"max min",
    ("ScatterND", "reduction"): b"max min",
}
"""Values of older attributes that are newer."""
_GRID_MODES = {b"linear": b"bilinear", b"cubic": b"bicubic"}

Change = Callable[[], None]


def lowered(scope: Scope, node: onnx.NodeProto, newest: int) -> list[Change] | str:
    """Returns what makes a node one of opset `LOWERED` with the same meaning, or why nothing does.

    Args:
        scope: The graph that it is in.
        node: A node.
        newest: The opset that it is of now.
    """
    if node.domain not in ONNX_DOMAINS:
        return []
    try:
        if defs.get_schema(node.op_type, newest).since_version <= LOWERED:
            return []
        older = defs.get_schema(node.op_type, LOWERED)
    except defs.SchemaError:
        return f"opset {LOWERED} has no {node.op_type}"
    changes: list[Change] = []
    for found in node.attribute:
        value = helper.get_attribute_value(found)
        if value and isinstance(value, bytes) and value in _NEWER_VALUES.get((node.op_type, found.name), b"").split():
            return f"opset {LOWERED} has no {node.op_type} with {found.name} {value.decode()}"
        if found.name in older.attributes:
            continue
        if found.name == "noop_with_empty_axes" or value in _NEUTRAL.get(found.name, ()):
            changes.append(_removal(node, found))
        elif found.name != "num_outputs":
            return f"opset {LOWERED} has no {node.op_type} with {found.name}"
    if not all((*node.input, *[""] * older.min_input)[: older.min_input]):
        return f"opset {LOWERED} has no {node.op_type} without its first inputs"
    special = _SPECIAL.get(node.op_type, _axes_as_attribute if "axes" in older.attributes else _same_inputs)
    rest = special(scope, node, older)
    return rest if isinstance(rest, str) else changes + rest


def _removal(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> Change:
    return lambda: node.attribute.remove(attribute)


def _same_inputs(scope: Scope, node: onnx.NodeProto, older: defs.OpSchema) -> list[Change] | str:
    extra = [name for name in node.input[older.max_input :] if name]
    return f"opset {LOWERED} has no {node.op_type} with {len(node.input)} inputs" if extra else []


def _axes_as_attribute(scope: Scope, node: onnx.NodeProto, older: defs.OpSchema) -> list[Change] | str:
    """A reduction: its axes were an attribute."""
    no_axes = any(each.name == "noop_with_empty_axes" and each.i for each in node.attribute)
    if len(node.input) < 2 or not node.input[1]:
        return "it reduces over no axes" if no_axes else []
    axes = scope.values(node.input[1])
    if axes is None:
        return "its axes are computed at run time"
    if not axes.size and no_axes:
        return "it reduces over no axes"

    def change() -> None:
        del node.input[1:]
        if axes.size:
            node.attribute.append(helper.make_attribute("axes", [int(axis) for axis in axes.reshape(-1)]))

    return [change]


def _split(scope: Scope, node: onnx.NodeProto, older: defs.OpSchema) -> list[Change] | str:
    """A Split into a number of parts: their sizes were an input."""
    given = next((each for each in node.attribute if each.name == "num_outputs"), None)
    if given is None:
        return []
    axis = next((each.i for each in node.attribute if each.name == "axis"), 0)
    shape = scope.shape(node.input[0])
    size = None if shape is None else shape[axis]
    if size is None:
        return "the size that it splits is not known"
    part = -(-size // given.i)
    sizes = [min(part, size - part * i) for i in range(given.i)]
    name = f"{node.output[0]}.sizes"
    if scope.initializer(name) is not None or scope.producer(name) is not None:
        return f"the name {name!r} is taken"

    def change() -> None:
        scope.graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), name))
        del node.input[1:]
        node.input.append(name)
        node.attribute.remove(given)

    return [change]


def _grid_sample(scope: Scope, node: onnx.NodeProto, older: defs.OpSchema) -> list[Change] | str:
    """A GridSample: its modes had other names, and its inputs four axes."""
    shape = scope.shape(node.input[0])
    if shape is None or len(shape) != 4:
        return f"opset {LOWERED} has no GridSample of other than four axes"
    mode = next((each for each in node.attribute if each.name == "mode"), None)
    if mode is None or mode.s not in _GRID_MODES:
        return []

    def change() -> None:
        mode.s = _GRID_MODES[mode.s]

    return [change]


_SPECIAL = {"Split": _split, "GridSample": _grid_sample}
