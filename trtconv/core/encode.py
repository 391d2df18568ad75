"""Reports as plain JSON values, and back: one encoder and one decoder for all of them."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from trtconv.core.version import __version__

SCHEMA = 1
"""Version of every JSON document that trtconv writes; raised when a key changes its meaning."""

T = TypeVar("T")
# Unions that are written where they are asked for are made each time.
_SCALARS, _LISTS = (str, int, float), (tuple, list)


class Document:
    """A dataclass that is written as a JSON object.

    Its keys are the names of its fields, or as `class Report(Document, keys="schema pass=pass_name why?")` says, in
    the order of the document: names of fields, properties and methods, after a "=" where the key is called otherwise;
    with "?", null stands for what is empty.
    """

    schema: ClassVar[int] = SCHEMA
    trtconv: ClassVar[str] = __version__
    _keys: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, keys: str = "") -> None:
        cls._keys = tuple(keys.split())

    def to_json(self) -> dict[str, Any]:
        """Returns the object as plain JSON values."""
        found: dict[str, Any] = {}
        for each in self._keys or [field.name for field in dataclasses.fields(self)]:  # type: ignore[arg-type]
            key, _, name = each.rstrip("?").partition("=")
            value = getattr(self, name or key)
            value = plain(value() if callable(value) else value)
            found[key] = None if each.endswith("?") and not value else value
        if "seconds" in found:
            # More would only tell how the clock is built.
            found["seconds"] = {stage: round(value, 4) for stage, value in found["seconds"].items()}
        return found


def plain(value: Any) -> Any:
    """Returns a value as plain JSON values: a dataclass as an object, whatever has `to_json` as that says."""
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, _LISTS):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, enum.Enum):
        return value.value
    return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def strict(value: Any) -> Any:
    """Returns plain JSON values with "nan", "inf" and "-inf" for the numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, _LISTS):
        return [strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def parsed(text: str | bytes) -> Any:
    """Reads JSON, which knows neither NaN nor numbers beyond all bounds, though Python does.

    Raises:
        ValueError, RecursionError: It is none.
    """
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a number")
    return number


def decoded(kind: type[T], data: Any) -> T:
    """Reads what `plain` made of a dataclass of plain values, enumerations, tuples and such dataclasses.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{field.name: decoded(hints[field.name], data[field.name]) for field in dataclasses.fields(kind)})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if kind is int:
        return typing.cast(T, int(data))
    if typing.get_origin(kind) is tuple:
        return tuple(decoded(typing.get_args(kind)[0], item) for item in data)  # type: ignore[return-value]
    return typing.cast(T, data)


_hints = functools.cache(typing.get_type_hints)
