"""Documents from JSON that a stranger may have written: checked against the class's type hints, once, at the door."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import sys
import types
import typing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from trtconv.core.encode import SCHEMA
from trtconv.core.errors import InputError

Measured = Annotated[float, "measured"]
"""A number that may be infinite or NaN too, which documents hold as the strings "inf", "-inf" and "nan"."""
_LARGEST = 2**63
_LARGEST_FLOAT = sys.float_info.max
_NOT_FINITE = ("inf", "-inf", "nan")

T = TypeVar("T")
Reader = Callable[[Any], Any]


class Fault(ValueError):
    """A value is not what its key is for.

    Args:
        what: What is wrong with it: "is missing", "'x' is not a number".
        place: Keys and indices that lead to it, the innermost first.
    """

    def __init__(self, what: str, place: Sequence[str | int] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.place = list(place)

    def __str__(self) -> str:
        steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(self.place)]
        where = "".join(steps).removeprefix(".")
        return f"key {where!r}: {self.what}" if where else self.what


def decoded(kind: type[T], value: Any) -> T:
    """Reads what `plain` made of a document.

    Keys that the class does not have are passed over: a newer trtconv may have written them. A key that is not there
    has its field's default.

    Args:
        kind: A dataclass of plain values, enumerations, tuples, mappings and such dataclasses. One with a class method
            `from_json` reads itself.
        value: Plain JSON values.

    Raises:
        Fault: A key is missing that has no default, or has a value of another type.
    """
    return typing.cast(T, _reader(typing.cast(Any, kind))(value))


def parsed(kind: type[T], data: bytes | str) -> T:
    """Reads a JSON document; see `decoded`.

    Raises:
        Fault: It is not JSON, has another schema, or as `decoded` says.
    """
    return decoded(kind, checked_schema(json_of(data)))


def json_of(data: bytes | str) -> Any:
    """Returns JSON as plain values. JSON knows neither NaN nor numbers beyond all bounds, though Python does.

    A key that comes twice is refused: others may read the first where this reads the last.

    Raises:
        Fault: It is not JSON.
    """
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise Fault(f"it is not JSON: {str(error)[:200] or type(error).__name__}") from error


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has the key {twice[:40]!r} twice")
    return document


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a number")
    return number


def checked_schema(value: Any) -> Any:
    """Returns a JSON document that this version of trtconv can read.

    Raises:
        Fault: It has another schema.
    """
    schema = value.get("schema", SCHEMA) if isinstance(value, dict) else SCHEMA
    if schema != SCHEMA or isinstance(schema, bool):
        raise Fault(f"{_literal(schema)} is not the schema that this version of trtconv reads ({SCHEMA})", ["schema"])
    return value


def fields_of(kind: type[Any], value: Any) -> dict[str, Any]:
    """Reads the fields of a dataclass, for a `from_json` of its own; see `decoded`."""
    if not isinstance(value, dict):
        raise Fault(f"{_literal(value)} is not an object")
    fields = {}
    for name, key, reader, required, empty in _plan(typing.cast(Any, kind)):
        if key not in value:
            if required:
                raise Fault("it is missing", [key])
        elif not (empty and value[key] is None):
            fields[name] = _inside(key, reader, value[key])
    return fields


@functools.cache
def _plan(kind: type[Any]) -> list[tuple[str, str, Reader, bool, bool]]:
    """Returns for each field its name and key, what reads it, whether it must be there, and whether null is empty."""
    spelled: dict[str, tuple[str, bool]] = {}
    for entry in getattr(kind, "_keys", ()):
        key, _, name = entry.rstrip("?-").partition("=")
        spelled[name or key] = key, entry[-1] in "?-"
    hints = typing.get_type_hints(kind, include_extras=True)
    missing = dataclasses.MISSING
    plan = []
    for field in dataclasses.fields(kind):
        key, empty = spelled.get(field.name, (field.name, False))
        required = field.default is missing and field.default_factory is missing
        plan.append((field.name, key, _reader(hints[field.name]), required, empty))
    return plan


@functools.cache
def _reader(kind: Any) -> Reader:
    """Returns what reads values of a type."""
    inside = typing.get_args(kind)
    if inside:
        return _composite(typing.get_origin(kind), inside)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if issubclass(kind, enum.Enum):
        return functools.partial(_member, kind)
    if hasattr(kind, "from_json"):
        return functools.partial(_own, kind)
    # Its hints are looked at when it is read: a class may hold its like.
    return functools.partial(_object, kind)


def _composite(origin: Any, inside: tuple[Any, ...]) -> Reader:
    if origin is Annotated:
        return _measured
    if origin in (dict, Mapping):
        return functools.partial(_mapping, _reader(inside[1]))
    if origin is tuple and inside[-1] is not Ellipsis:
        return functools.partial(_row, [_reader(kind) for kind in inside])
    if origin in (tuple, list, Sequence):
        return functools.partial(_listed, list if origin is list else tuple, _reader(inside[0]))
    assert origin in (typing.Union, types.UnionType), origin
    return _any_of(inside)


def _inside(step: str | int, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except Fault as fault:
        fault.place.append(step)
        raise


def _own(kind: Any, value: Any) -> Any:
    try:
        return kind.from_json(value)
    except InputError as error:
        raise Fault(error.message) from error


def _object(kind: Any, value: Any) -> Any:
    fields = fields_of(kind, value)
    try:
        return kind(**fields)
    except InputError as error:
        raise Fault(error.message) from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Fault(f"{_literal(value)} is not a text")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Fault(f"{_literal(value)} is not true or false")
    return value


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _LARGEST:
        raise Fault(f"{_literal(value)} is not an integer of 64 bits")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Fault(f"{_literal(value)} is not a number")
    # An integer may be beyond all floats.
    if (isinstance(value, float) and not math.isfinite(value)) or abs(value) > _LARGEST_FLOAT:
        raise Fault(f"{_literal(value)} is not a finite number")
    return value


def _measured(value: Any) -> float:
    if isinstance(value, float) or (isinstance(value, str) and value in _NOT_FINITE):
        return float(value)
    return _number(value)


def _nothing(value: Any) -> None:
    if value is not None:
        raise Fault(f"{_literal(value)} is not null")


_SCALARS: dict[Any, Reader] = {
    str: _text,
    bool: _bool,
    int: _int,
    float: _number,
    type(None): _nothing,
    Any: lambda value: value,
    object: lambda value: value,
    Path: lambda value: Path(_text(value)),
}


def _any_of(kinds: Sequence[Any]) -> Reader:
    nullable = type(None) in kinds
    readers = [_reader(kind) for kind in kinds if kind is not type(None)]

    def read(value: Any) -> Any:
        if value is None and nullable:
            return None
        for reader in readers[:-1]:
            try:
                return reader(value)
            except Fault:
                continue
        return readers[-1](value)

    return read


def _member(kind: type[enum.Enum], value: Any) -> enum.Enum:
    for member in kind:
        if member.value == value and type(member.value) is type(value):
            return member
    raise Fault(f"{_literal(value)} is not one of {', '.join(str(member.value) for member in kind)}")


def _listed(make: Callable[[Any], Any], reader: Reader, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise Fault(f"{_literal(value)} is not a list")
    return make(_inside(index, reader, item) for index, item in enumerate(value))


def _row(readers: Sequence[Reader], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or len(value) != len(readers):
        raise Fault(f"{_literal(value)} is not a list of {len(readers)}")
    return tuple(_inside(index, reader, item) for index, (reader, item) in enumerate(zip(readers, value, strict=True)))


def _mapping(reader: Reader, value: Any) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Fault(f"{_literal(value)} is not an object")
    return {key: _inside(key, reader, item) for key, item in value.items()}


def _literal(value: Any) -> str:
    """Returns a value for a message, cut short."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = repr(value) if not isinstance(value, int) or abs(value) < _LARGEST else "a huge number"
    return text if len(text) <= 80 else f"{text[:77]}..."
