"""What every request is: a dataclass that takes what people write in Python."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from trtconv.core.dims import Range
from trtconv.core.errors import InputError
from trtconv.core.files import openable
from trtconv.core.options import options, validate

Taken = ParamSpec("Taken")
Returned = TypeVar("Returned")
Bounds = Mapping[str, Range]
"""Dimension name or INPUT:AXIS to its range."""


_REQUEST = "request"
"""What functions of the Python API call what they take."""
OUTPUT = "output"
"""The field of a file that is written, where a command cannot do without it."""


class Request:
    """A dataclass that takes what callers of the Python API like to write.

    Paths may be text, bounds are what `Range.of` takes, and what a flag or a table of trtconv.toml is read into may be
    its text.

    A path that is written is one by which the file can then be opened (`openable`). A word that an option does not
    take, or a number out of its range, is refused as on the command line.
    """

    def __post_init__(self) -> None:
        for name, take in _conversions(type(self)):  # type: ignore[arg-type]
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, take(value))
        validate(self)


def takes_request(function: Callable[Taken, Returned]) -> Callable[Taken, Returned]:
    """Lets a function of the Python API say what it takes, where it is given something else."""

    @functools.wraps(function)
    def called(*args: Taken.args, **kwargs: Taken.kwargs) -> Returned:
        given = args[0] if args else kwargs.get(_REQUEST)
        if not isinstance(given, Request):
            name, kind = function.__name__, function.__annotations__[_REQUEST]
            words = f"trtconv.{name}(trtconv.{kind}(...))"
            raise InputError(f"{name} takes a {kind}, and was given {type(given).__name__}", f"Write {words}.")
        return function(*args, **kwargs)

    return called


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
    read = {
        name: option.read for name, option in options(request) if len(option.flags) == 1 and not option.flags[0].many
    }
    load = {name: option.load for name, option in options(request) if len(option.settings) == 1}
    conversions: list[tuple[str, Callable[[Any], Any]]] = []
    for field in dataclasses.fields(request):
        kind = kinds[field.name]
        if Path in _members(kind):
            writes = field.name == OUTPUT or ("option" in field.metadata and field.metadata["option"].writes)
            conversions.append((field.name, _written if writes else _read))
        elif kind == Bounds:
            conversions.append((field.name, _ranges))
        elif kind == tuple[Bounds, ...]:
            conversions.append((field.name, lambda several: tuple(map(_ranges, several))))
        elif str not in _members(kind) and (reads := read.get(field.name)) is not None:
            conversions.append((field.name, functools.partial(_of_text, reads)))
        elif (loads := load.get(field.name)) is not None and _maps_to_objects(kind):
            conversions.append((field.name, functools.partial(_of_table, loads)))
    return tuple(conversions)


def _read(value: Any) -> Any:
    return Path(value) if isinstance(value, (str, Path)) else value


def _written(value: Any) -> Any:
    return openable(Path(value)) if isinstance(value, (str, Path)) else value


def _of_text(reads: Callable[[str], Any], value: Any) -> Any:
    return reads(value) if isinstance(value, str) else value


def _of_table(loads: Callable[[Any], Any], value: Mapping[str, Any]) -> Any:
    return loads(value) if value and all(isinstance(entry, str) for entry in value.values()) else value


def _maps_to_objects(kind: Any) -> bool:
    return typing.get_origin(kind) is Mapping and typing.get_args(kind)[1] is not str


def _members(kind: Any) -> tuple[Any, ...]:
    """Returns the types that a union allows, or the one that is asked for."""
    return typing.get_args(kind) or (kind,)
