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
from trtconv.core.files import openable
from trtconv.core.options import validate

Bounds = Mapping[str, Range]
"""Dimension name or INPUT:AXIS to its range."""


OUTPUT = "output"
"""The field of a file that is written, where a command cannot do without it."""


class Request:
    """A dataclass that takes what callers of the Python API like to write: paths as text, bounds as `Range.of` does.

    A path that is written is one by which the file can then be opened (`openable`). A word that an option does not
    take, or a number out of its range, is refused as on the command line.
    """

    def __post_init__(self) -> None:
        kinds = _kinds_of(type(self))  # type: ignore[arg-type]
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, kind = getattr(self, field.name), kinds[field.name]
            if isinstance(value, (str, Path)) and Path in _members(kind):
                writes = field.name == OUTPUT or ("option" in field.metadata and field.metadata["option"].writes)
                object.__setattr__(self, field.name, openable(Path(value)) if writes else Path(value))
            elif value and kind == Bounds:
                object.__setattr__(self, field.name, _ranges(value))
            elif value and kind == tuple[Bounds, ...]:
                object.__setattr__(self, field.name, tuple(map(_ranges, value)))
        validate(self)


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
