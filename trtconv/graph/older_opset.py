"""What a node is called in an older opset: the changes that write it there with the same meaning, or why none do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS

LOWERED = 17
"""The newest opset that TensorRT 8.6 knows."""
_ELSEWHERE = frozenset({"axes", "noop_with_empty_axes", "num_outputs"})
"""Newer attributes that the changes of their operators are about."""
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
        newer, older = (defs.get_schema(node.op_type, version) for version in (newest, LOWERED))
    except defs.SchemaError:
        return f"opset {LOWERED} has no {node.op_type}"
    if newer.since_version <= LOWERED:
        return []
    changes: list[Change] = []
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if (
            value
            and isinstance(value, bytes)
            and value in _NEWER_VALUES.get((node.op_type, attribute.name), b"").split()
        ):
            return f"opset {LOWERED} has no {node.op_type} with {attribute.name} {value.decode()}"
        if attribute.name in older.attributes:
            continue
        if attribute.name == "noop_with_empty_axes" or _is_neutral(newer, attribute.name, value):
            changes.append(_removal(node, attribute))
        elif attribute.name != "num_outputs" and not (attribute.name == "axes" and node.op_type == "Resize"):
            return f"opset {LOWERED} has no {node.op_type} with {attribute.name}"
    if not all((*node.input, *[""] * older.min_input)[: older.min_input]):
        return f"opset {LOWERED} has no {node.op_type} without its first inputs"
    special = _SPECIAL.get(node.op_type, _axes_as_attribute if "axes" in older.attributes else _same_inputs)
    rest = special(scope, node, older)
    return rest if isinstance(rest, str) else [*changes, *rest, *_shortening(node, older.max_input)]


def _is_neutral(newer: defs.OpSchema, name: str, value: Any) -> bool:
    """Whether a newer attribute says what was so before there was it: its default, and dilations of one."""
    if name in _ELSEWHERE:
        return False
    default = newer.attributes[name].default_value
    is_default = default.type != onnx.AttributeProto.UNDEFINED and value == helper.get_attribute_value(default)
    return is_default or (name == "dilations" and set(value) == {1})


def _removal(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> Change:
    return lambda: node.attribute.remove(attribute)


def _shortening(node: onnx.NodeProto, most: int) -> list[Change]:
    """Takes newer inputs off that are there without a name, which is as if they were not."""

    def change() -> None:
        del node.input[most:]

    return [] if any(node.input[most:]) else [change]


def _same_inputs(scope: Scope, node: onnx.NodeProto, older: defs.OpSchema) -> list[Change] | str:
    extra = [name for name in node.input[older.max_input :] if name]
    return f"opset {LOWERED} has no {node.op_type} with {len(node.input)} inputs" if extra else []


def _axes_as_attribute(scope: Scope, node: onnx.NodeProto, older: defs.OpSchema) -> list[Change] | str:
    """A reduction: its axes were an attribute."""
    no_axes = any(attribute.name == "noop_with_empty_axes" and attribute.i for attribute in node.attribute)
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
    number = next((attribute for attribute in node.attribute if attribute.name == "num_outputs"), None)
    if number is None:
        return []
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    shape = scope.shape(node.input[0])
    # The model may state fewer axes than it has.
    size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    if size is None:
        return "the size that it splits is not known"
    part = -(-size // number.i)
    sizes = [max(0, min(part, size - part * i)) for i in range(number.i)]
    name = f"{node.output[0]}.sizes"
    if scope.initializer(name) is not None or scope.producer(name) is not None:
        return f"the name {name!r} is taken"

    def change() -> None:
        scope.graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), name))
        del node.input[1:]
        node.input.append(name)
        node.attribute.remove(number)

    return [change]


def _grid_sample(scope: Scope, node: onnx.NodeProto, older: defs.OpSchema) -> list[Change] | str:
    """A GridSample: its modes had other names, and its inputs four axes."""
    shape = scope.shape(node.input[0])
    if shape is None or len(shape) != 4:
        return f"opset {LOWERED} has no GridSample of other than four axes"
    mode = next((attribute for attribute in node.attribute if attribute.name == "mode"), None)
    if mode is None or mode.s not in _GRID_MODES:
        return []

    def change() -> None:
        mode.s = _GRID_MODES[mode.s]

    return [change]


def _dft(scope: Scope, node: onnx.NodeProto, older: defs.OpSchema) -> list[Change] | str:
    """A DFT: its axis was an attribute, and by default the first behind the batch, not the last of the signal."""
    shape = scope.shape(node.input[0])
    axis_name = node.input[2] if len(node.input) > 2 else ""
    axis = scope.values(axis_name) if axis_name else np.array(-2)
    if axis is None or axis.size != 1:
        return "its axis is computed at run time"
    if shape is None and axis.item() < 0:
        return "how many axes its input has is not known"
    place = int(axis.item()) + (len(shape) if shape is not None and axis.item() < 0 else 0)

    def change() -> None:
        del node.input[2:]
        node.attribute.append(helper.make_attribute("axis", place))

    return [change]


def _constants(scope: Scope, node: onnx.NodeProto, slots: Mapping[int, Any]) -> list[Change] | str:
    """Returns what gives a node constants as inputs.

    Args:
        scope: The graph that it is in.
        node: The node.
        slots: Positions of inputs to their values.
    """
    names = {slot: f"{node.output[0]}.{slot}" for slot in slots}
    twins = [name for name in names.values() if scope.initializer(name) is not None or scope.producer(name) is not None]
    if twins:
        return f"the name {twins[0]!r} is taken"

    def change() -> None:
        for slot, values in slots.items():
            scope.graph.initializer.append(numpy_helper.from_array(values, names[slot]))
            node.input[slot] = names[slot]

    return [change]


def _resize(scope: Scope, node: onnx.NodeProto, older: defs.OpSchema) -> list[Change] | str:
    """A Resize of some axes: all had a scale, a size and a region."""
    axes_attribute = next((attribute for attribute in node.attribute if attribute.name == "axes"), None)
    if axes_attribute is None:
        return _same_inputs(scope, node, older)
    shape = scope.shape(node.input[0])
    if shape is None:
        return "how many axes its input has is not known"
    axes, slots = [axis % len(shape) for axis in axes_attribute.ints], {}
    for slot, name in list(enumerate(node.input))[1:]:
        values = scope.values(name) if name else np.zeros(0)
        if values is None:
            return "what it resizes to is computed at run time"
        if not values.size:
            continue
        if slot == 1:
            whole = np.array([[0] * len(shape), [1] * len(shape)], values.dtype)
            whole[:, axes] = values.reshape(2, -1)
        elif slot == 2 or None not in shape:
            whole = np.array([1] * len(shape) if slot == 2 else shape, values.dtype)
            whole[axes] = values.reshape(-1)
        else:
            return "the sizes of its input are known only at run time"
        slots[slot] = whole.reshape(-1)
    changes = _constants(scope, node, slots)
    return changes if isinstance(changes, str) else [_removal(node, axes_attribute), *changes]


def _pad(scope: Scope, node: onnx.NodeProto, older: defs.OpSchema) -> list[Change] | str:
    """A Pad of some axes: all had their pads."""
    if len(node.input) < 4 or not node.input[3]:
        return _same_inputs(scope, node, older)
    shape, pads, axes = scope.shape(node.input[0]), scope.values(node.input[1]), scope.values(node.input[3])
    if shape is None or pads is None or axes is None:
        return "its pads, or the axes that it pads, are computed at run time"
    whole = np.zeros((2, len(shape)), pads.dtype)
    whole[:, axes.reshape(-1) % len(shape)] = pads.reshape(2, -1)
    changes = _constants(scope, node, {1: whole.reshape(-1)})
    return changes if isinstance(changes, str) else [*changes, lambda: node.input.__delitem__(3)]


_SPECIAL = {"Split": _split, "Resize": _resize, "Pad": _pad, "GridSample": _grid_sample, "DFT": _dft}
