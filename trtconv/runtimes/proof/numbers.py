"""The numbers that a piece holds, around which it may behave otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import helper

from trtconv.graph.model import OnnxModel

_FEW = 8
"""Elements of constants that are limits; larger ones are weights."""
_FLOATS = (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS)


def numbers_of(model: OnnxModel, nodes: Iterable[onnx.NodeProto]) -> list[float]:
    """Returns the floats that nodes have as attributes, and read as small constants.

    Args:
        model: The model.
        nodes: Nodes of its main graph.
    """
    floats: list[float] = []
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type in _FLOATS:
                floats += numbers(np.asarray(helper.get_attribute_value(attribute), np.float64))
        for name in node.input:
            tensor = model.main.constant(name) if name else None
            if tensor is not None and math.prod(tensor.dims) <= _FEW:
                floats += numbers(model.main.values(name))
    return floats


def numbers(value: object) -> list[float]:
    """Returns the elements of a float, or of a small array of floats; none of anything else."""
    if isinstance(value, float):
        return [value]
    if isinstance(value, np.ndarray) and 0 < value.size <= _FEW and value.dtype.kind in "fV":
        return [float(element) for element in value.astype(np.float64).reshape(-1)]
    return []
