"""The shapes of a model's tensors at some sizes, by its size lattice: no weights are read, and nothing is inferred."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.dims import Shape, ShapeProfile
from trtconv.core.named_sizes import KnownSizes
from trtconv.shapes.lattice import Sizes


def known_sizes(sizes: Sizes, profiles: Sequence[ShapeProfile]) -> KnownSizes:
    """Returns the shapes of a model's tensors at opt of each profile, and where single dimensions are otherwise.

    Args:
        sizes: Of the model.
        profiles: Where they lie.
    """
    points = _points(profiles)
    return KnownSizes(points, model_shapes(sizes, points), max(len(profiles), 1))


def _points(profiles: Sequence[ShapeProfile]) -> list[Mapping[str, int]]:
    """Returns sizes of the free dimensions: opt of each profile, then the first one with one dimension changed."""
    opts = [{name: bound.opt for name, bound in profile.dims.items()} for profile in profiles] or [{}]
    first = profiles[0].dims if profiles else {}
    changed = [
        {**opts[0], name: size}
        for name, bound in first.items()
        for size in dict.fromkeys((bound.min, bound.max))
        if size != bound.opt
    ]
    return [*opts, *changed]


def model_shapes(sizes: Sizes, points: Sequence[Mapping[str, int]]) -> list[dict[str, Shape]]:
    """Returns the shapes of a model's tensors at each point, as far as they are known.

    Args:
        sizes: Of the model.
        points: Sizes of every free dimension.
    """
    trial = sizes.run(points, keep=True)
    all_shapes: list[dict[str, Shape]] = [{} for _ in points]
    for name, tensor in trial.tensors.items():
        if tensor.shape is None or not tensor.is_known:
            continue
        columns = [_column(num.value, len(points)) for num in tensor.shape]
        for row, shapes in enumerate(all_shapes):
            shape = tuple(column[row] for column in columns)
            if None not in shape:
                shapes[name] = shape  # type: ignore[assignment]
    return all_shapes


def _column(value: Any, rows: int) -> list[int | None]:
    """Returns a size at each point; None where it is not a whole number, as at points that the network refuses."""
    if type(value) is int and value >= 0:
        return [value] * rows
    values = np.broadcast_to(np.asarray(value), rows).tolist()
    return [
        int(number) if math.isfinite(number) and number == int(number) and number >= 0 else None for number in values
    ]
