"""What every request is: a dataclass that takes what people write in Python."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from trtconv.core.agreement import CodeFile
from trtconv.core.dims import Range
from trtconv.core.errors import InputError
from trtconv.core.files import openable
from trtconv.core.options import Option, options, validate
from trtconv.core.progress import require_progress
from trtconv.core.typed import settle_fields

Taken = ParamSpec("Taken")
Returned = TypeVar("Returned")
Bounds = Mapping[str, Range]
"""Dimension name or INPUT:AXIS to its range."""


_REQUEST, _PROGRESS = "request", "progress"
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
        settle(self)


def settle(request: Any) -> None:
    """Makes the fields of a request, or of options that belong to one, what they hold of what was written.

    Raises:
        InputError: One is of another type, none of the words that its option takes, or out of its range.
    """
    for name, take in _conversions(type(request)):  # type: ignore[arg-type]
        value = getattr(request, name)
        if value is not None:
            object.__setattr__(request, name, take(value))
    # Which words an option takes says more than that it takes text.
    validate(request)
    settle_fields(request)


def takes_request(function: Callable[Taken, Returned]) -> Callable[Taken, Returned]:
    """Lets a function of the Python API say what it takes, where it is given something else."""
    name = function.__name__
    takes_progress = _PROGRESS in function.__annotations__

    @functools.wraps(function)
    def called(*args: Taken.args, **kwargs: Taken.kwargs) -> Returned:
        request = args[0] if args else kwargs.get(_REQUEST)
        kind = function.__annotations__[_REQUEST]
        if not isinstance(request, Request) or not any(above.__name__ == kind for above in type(request).__mro__):
            words = f"trtconv.{name}(trtconv.{kind}(...))"
            raise InputError(f"{name} takes a {kind}, and was given {type(request).__name__}", f"Write {words}.")
        if takes_progress:
            require_progress(name, args[1] if len(args) > 1 else kwargs.get(_PROGRESS))
        return function(*args, **kwargs)

    return called


def ranges(bounds: Any) -> Any:
    """Returns bounds as ranges; what is wrong with one is told with its name."""
    if not isinstance(bounds, Mapping) or not all(isinstance(name, str) for name in bounds):
        return bounds
    result = {}
    for name, bound in bounds.items():
        try:
            result[name] = Range.of(bound)
        except InputError as error:
            raise InputError(f"bounds of {name!r}: {error.message}", error.hint) from error
    return result


@functools.cache
def _conversions(request: type) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Returns what becomes of the values of those fields that take more than they hold."""
    kinds = typing.get_type_hints(request)
    single = {name: option for name, option in options(request) if len(option.flags) == 1}
    readers = {name: option.read for name, option in single.items() if not option.flags[0].many}
    several = {name: option for name, option in single.items() if option.flags[0].many and option.read is not None}
    words = {name: single[name].flags[0].takes for name in readers}
    load = {name: option.load for name, option in options(request) if len(option.settings) == 1}
    conversions: list[tuple[str, Callable[[Any], Any]]] = []
    for field in dataclasses.fields(request):
        kind = kinds[field.name]
        if Path in (typing.get_args(kind) or (kind,)):
            writes = field.name == OUTPUT or ("option" in field.metadata and field.metadata["option"].writes)
            conversions.append((field.name, _openable if writes else _read))
        elif kind == Bounds:
            conversions.append((field.name, ranges))
        elif kind == tuple[Bounds, ...]:
            conversions.append((field.name, _each_ranges))
        elif kind == tuple[CodeFile, ...]:
            conversions.append((field.name, _code))
        elif field.name in several and kind in (tuple[str, ...], Mapping[str, str]):
            conversions.append((field.name, functools.partial(_of_several, several[field.name])))
        elif (reads := readers.get(field.name)) is not None and kind in (str, str | None):
            conversions.append((field.name, functools.partial(_of_word, reads)))
        elif reads is not None:
            conversions.append((field.name, functools.partial(_of_text, reads, words.get(field.name, ()))))
        elif (loads := load.get(field.name)) is not None and _maps_to_objects(kind):
            conversions.append((field.name, functools.partial(_of_table, loads)))
    return tuple(conversions)


def _read(value: Any) -> Any:
    return Path(value) if isinstance(value, (str, Path)) else value


def _openable(value: Any) -> Any:
    return openable(Path(value)) if isinstance(value, (str, Path)) else value


def _each_ranges(several: Any) -> Any:
    return tuple(map(ranges, several)) if isinstance(several, (tuple, list)) else several


def _code(files: Any) -> Any:
    kinds = (str, Path, CodeFile)
    sound = isinstance(files, (tuple, list)) and all(isinstance(file, kinds) for file in files)
    return CodeFile.named(files) if sound else files


def _of_text(reads: Callable[[str], Any], words: Any, value: Any) -> Any:
    # What is none of the words `validate` tells.
    return reads(value) if isinstance(value, str) and (not isinstance(words, tuple) or value in words) else value


def _of_word(reads: Callable[[Any], Any], value: Any) -> Any:
    return reads(str(value)) if isinstance(value, (str, int)) and not isinstance(value, bool) else value


def _of_several(option: Option, value: Any) -> Any:
    kinds = Mapping if isinstance(option.default, Mapping) else (tuple, list)
    entries = [*value, *value.values()] if isinstance(value, Mapping) else value
    if option.read is None or not isinstance(value, kinds) or not all(isinstance(option, str) for option in entries):
        return value
    # Read as the flag's values are, which finds words that it does not take.
    return option.read(option.write(value) if option.write is not None else value)


def _of_table(loads: Callable[[Any], Any], value: Any) -> Any:
    sound = (
        isinstance(value, Mapping) and value and all(isinstance(option, str) for option in (*value, *value.values()))
    )
    return loads(value) if sound else value


def _maps_to_objects(kind: Any) -> bool:
    return typing.get_origin(kind) in (Mapping, dict) and typing.get_args(kind)[1] is not str
