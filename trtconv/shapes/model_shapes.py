"""The shapes of a model's tensors at some sizes, by its size lattice: no weights are read, and nothing is inferred."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.dims import Shape
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes


def model_shapes(model: OnnxModel, points: Sequence[Mapping[str, int]]) -> list[dict[str, Shape]]:
    """Returns the shapes of a model's tensors at each point, as far as they are known.

    Args:
        model: The model.
        points: Sizes of every free dimension.
    """
    sizes = Sizes(model)
    trial = sizes.run(points, keep=True)
    found: list[dict[str, Shape]] = [{} for _ in points]
    for name, tensor in trial.tensors.items():
        if tensor.shape is None or not all(num.known for num in tensor.shape):
            continue
        columns = [_column(num.value, len(points)) for num in tensor.shape]
        for row, shapes in enumerate(found):
            shape = tuple(column[row] for column in columns)
            if None not in shape:
                shapes[name] = shape  # type: ignore[assignment]
    return found


def _column(value: Any, rows: int) -> list[int | None]:
    """Returns a size at each point; None where it is not a whole number, as at points that the network refuses."""
    values = np.broadcast_to(np.asarray(value), rows).tolist()
    return [int(each) if math.isfinite(each) and each == int(each) and each >= 0 else None for each in values]
