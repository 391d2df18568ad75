"""Documents as plain JSON values: one encoder for all of them; `core/decode.py` reads them back."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from trtconv.core.version import __version__

SCHEMA = 1
"""Version of every JSON document that trtconv writes; raised when a key changes its meaning."""

# Unions that are written where they are asked for are made each time.
_SCALARS, _LISTS = (str, int, float), (tuple, list)


class Document:
    """A dataclass that is written as a JSON object.

    Its keys are the names of its fields, or as `class Report(Document, keys="schema pass=pass_name why?")` says, in
    the order of the document: names of fields, properties and methods, after a "=" where the key is called otherwise;
    with "?", null stands for what is empty; with "-", a key is left out whose value is None.
    """

    schema: ClassVar[int] = SCHEMA
    trtconv: ClassVar[str] = __version__
    _keys: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, keys: str = "") -> None:
        cls._keys = tuple(keys.split())

    def to_json(self) -> dict[str, object]:
        """Returns the object as plain JSON values."""
        document: dict[str, object] = {}
        for entry in self._keys or [field.name for field in dataclasses.fields(self)]:  # type: ignore[arg-type]
            key, _, name = entry.rstrip("?-").partition("=")
            value = getattr(self, name or key)
            if value is None and entry.endswith("-"):
                continue
            value = plain(value() if callable(value) else value)
            document[key] = None if entry.endswith("?") and not value else value
        return document


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
