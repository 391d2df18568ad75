"""What a field or an argument of the Python API may hold, by its type hint: checked where it is given, by its name."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import os
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.errors import InputError

_WORDS: Mapping[Any, tuple[str, str]] = {
    bool: ("True or False", "True"),
    int: ("a whole number", "1"),
    float: ("a number", "0.5"),
    str: ("text", '"..."'),
    Path: ("a path", '"folder/file"'),
    type(None): ("None", "None"),
    Any: ("values", "..."),
}
"""Type to what it is called, and an example."""
_LONGEST = 60


class Misfit(TypeError):
    """A value is not of the type that is asked for."""


def converted(kind: Any, value: Any) -> Any:
    """Returns a value as a type hint has it: lists as tuples, text as paths, whole numbers of other libraries as int.

    Raises:
        Misfit: It is none of these.
    """
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _of_union(members, value)
    if origin is tuple:
        return _of_tuple(members, value)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise Misfit
        mapping = {converted(members[0], name): converted(members[1], item) for name, item in value.items()}
        same = all(mapping.get(name) is item for name, item in value.items())
        return value if same else mapping
    if kind is Path and isinstance(value, (str, os.PathLike)) and isinstance(os.fspath(value), str):
        return value if isinstance(value, Path) else Path(value)
    number: Any = {int: numbers.Integral, float: numbers.Real}.get(kind)
    if number is not None and isinstance(value, number) and not isinstance(value, bool):
        return value if type(value) in (int, float) else kind(value)
    if number is not None or not isinstance(value, origin or kind):
        raise Misfit
    return value


def _of_union(members: tuple[Any, ...], value: Any) -> Any:
    # What is there already goes before what could be made of it.
    for kind in sorted(members, key=lambda kind: not (isinstance(kind, type) and isinstance(value, kind))):
        try:
            return converted(kind, value)
        except Misfit:
            continue
    raise Misfit


def _of_tuple(members: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, (tuple, list)):
        raise Misfit
    kinds = members[:1] * len(value) if members[-1:] == (...,) else members
    if len(kinds) != len(value):
        raise Misfit
    entries = tuple(converted(kind, item) for kind, item in zip(kinds, value, strict=True))
    same = isinstance(value, tuple) and all(new is old for new, old in zip(entries, value, strict=True))
    return value if same else entries


def in_words(kind: Any) -> tuple[str, str]:
    """Returns what a type hint takes in words, and an example."""
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        pairs = [in_words(member) for member in members]
        return " or ".join(words for words, _ in pairs), pairs[0][1]
    if origin is tuple:
        words, example = in_words(members[0])
        return f"a tuple of {words}", f"({example},)"
    if origin is not None and issubclass(origin, Mapping):
        words, example = in_words(members[1])
        return f"a mapping of names to {words}", f'{{"name": {example}}}'
    if kind in _WORDS:
        return _WORDS[kind]
    example = getattr(kind, "EXAMPLE", "")
    return f"{_article(kind.__name__)} {kind.__name__}", example or f"trtconv.{kind.__name__}(...)"


def _article(name: str) -> str:
    return "an" if name[0] in "AEIO" else "a"


def wording(value: object) -> str:
    """Returns a value as a message names it: one that has no short literal by its type."""
    literal, kind = repr(value), type(value)
    nameless = callable(value) or kind.__repr__ is object.__repr__ or len(literal) > _LONGEST
    return f"{_article(kind.__name__.upper())} {kind.__name__}" if nameless else literal


def argument(call: str, name: str, kind: Any, value: Any) -> Any:
    """Returns an argument of a function or a field of a request as its type hint has it.

    Args:
        call: What it was given to.
        name: Of the argument.
        kind: Its type hint.
        value: What was given.

    Raises:
        InputError: It is something else; the message names it and what it takes.
    """
    try:
        return converted(kind, value)
    except Misfit as error:
        words, example = in_words(kind)
        message = f"{name} of {call} takes {words}, and was given {wording(value)}"
        raise InputError(message, f"Write {name}={example}.") from error


def settle_fields(instance: Any) -> None:
    """Holds the fields of a dataclass to their type hints; one that has its default is left alone.

    Raises:
        InputError: A field has another type; the message names it.
    """
    for name, kind, default in _fields(type(instance)):  # type: ignore[arg-type]
        value = getattr(instance, name)
        if value is default:
            continue
        settled = argument(type(instance).__name__, name, kind, value)
        if settled is not value:
            object.__setattr__(instance, name, settled)


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Any, Any], ...]:
    hints = typing.get_type_hints(kind)
    return tuple((field.name, hints[field.name], field.default) for field in dataclasses.fields(kind))
