"""What every request is: a dataclass that takes what people write in Python."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping
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
        for name, take in _conversions(type(self)):  # type: ignore[arg-type]
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, take(value))
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
def _conversions(request: type) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Returns what becomes of the values of those fields that take more than they hold."""
    kinds = typing.get_type_hints(request)
    found: list[tuple[str, Callable[[Any], Any]]] = []
    for field in dataclasses.fields(request):
        kind = kinds[field.name]
        if Path in _members(kind):
            writes = field.name == OUTPUT or ("option" in field.metadata and field.metadata["option"].writes)
            found.append((field.name, _written if writes else _read))
        elif kind == Bounds:
            found.append((field.name, _ranges))
        elif kind == tuple[Bounds, ...]:
            found.append((field.name, lambda several: tuple(map(_ranges, several))))
    return tuple(found)


def _read(value: Any) -> Any:
    return Path(value) if isinstance(value, (str, Path)) else value


def _written(value: Any) -> Any:
    return openable(Path(value)) if isinstance(value, (str, Path)) else value


def _members(kind: Any) -> tuple[Any, ...]:
    """Returns the types that a union allows, or the one that is asked for."""
    return typing.get_args(kind) or (kind,)
