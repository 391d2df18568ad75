"""The attributes of nodes, by name."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """Returns the value of an attribute; a text is bytes."""
    entry = next((candidate for candidate in node.attribute if candidate.name == name), None)
    return default if entry is None else helper.get_attribute_value(entry)


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Returns the values of all attributes; texts are bytes."""
    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}


def readable(attribute: onnx.AttributeProto) -> Any:
    """Returns the value of an attribute, texts as such."""
    value = helper.get_attribute_value(attribute)
    return value.decode(errors="replace") if isinstance(value, bytes) else value
