"""What every request is: a dataclass that takes what people write in Python."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.dims import Range
from trtconv.core.errors import InputError

Bounds = Mapping[str, Range]
"""Dimension name or INPUT:AXIS to its range."""


class Request:
    """A dataclass that takes what callers of the Python API like to write: paths as text, bounds as `Range.of` does."""

    def __post_init__(self) -> None:
        kinds = _kinds_of(type(self))  # type: ignore[arg-type]
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, kind = getattr(self, field.name), kinds[field.name]
            if isinstance(value, str) and Path in _members(kind):
                object.__setattr__(self, field.name, Path(value))
            elif value and kind == Bounds:
                object.__setattr__(self, field.name, _ranges(value))
            elif value and kind == tuple[Bounds, ...]:
                object.__setattr__(self, field.name, tuple(map(_ranges, value)))


def _ranges(bounds: Mapping[str, Any]) -> Bounds:
    """Returns bounds as ranges; what is wrong with one is told with its name."""
    ranges = {}
    for name, bound in bounds.items():
        try:
            ranges[name] = Range.of(bound)
        except InputError as error:
            raise InputError(f"bounds of {name!r}: {error.message}", error.hint) from error
    return ranges


@functools.cache
def _kinds_of(request: type) -> dict[str, object]:
    return typing.get_type_hints(request)


def _members(kind: Any) -> tuple[Any, ...]:
    """Returns the types that a union allows, or the one that is asked for."""
    return typing.get_args(kind) or (kind,)
