"""Inputs inside others: dictionaries, lists, tuples and dataclasses of tensors, as forward takes them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from trtconv.core.errors import InputError
from trtconv.core.typed import wording
from trtconv.exporter.inputs import AxisNames
from trtconv.exporter.module.torch_module import Adapter

_AXES = (str, type(None), Mapping, list, tuple)
"""What names of axes are, or what nests them."""


@dataclasses.dataclass(frozen=True)
class Slot:
    """The place of a tensor among nested arguments.

    Args:
        number: Which tensor of the flat inputs it is.
    """

    number: int


class Nested(Adapter):
    """Gives a module with nested arguments flat inputs.

    Args:
        module: The module.
        positional: Its arguments by position, with a `Slot` for each tensor.
        named: Those by keyword, likewise.
    """

    def __init__(self, module: torch.nn.Module, positional: Sequence[Any], named: Mapping[str, Any]) -> None:
        super().__init__(module, ())
        self.positional, self.named = list(positional), dict(named)

    def call(self, *tensors: torch.Tensor) -> Any:
        """Calls the module with the tensors in their places and returns what it returns."""
        return self.inner(*_filled(self.positional, tensors), **_filled(self.named, tensors))


class Leaves:
    """Takes the tensors out of nested arguments.

    Attributes:
        tensors: Name of each, as in "batch.image" or "features.0", to the tensor.
        constants: Name of each number, text or None to it.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.constants: dict[str, Any] = {}

    def take(self, value: Any, name: str) -> Any:
        """Returns a value with slots in place of its tensors."""
        if isinstance(value, torch.Tensor):
            self.tensors[name] = value
            return Slot(len(self.tensors) - 1)
        parts = dict(_parts(value))
        if not parts:
            self.constants[name] = value
            return value
        return _with(value, {key: self.take(part, f"{name}.{key}") for key, part in parts.items()})


def slots_of_names(names: Sequence[str]) -> dict[str, Any]:
    """Returns forward's arguments for inputs that are named by their places: "batch.image", "features.0".

    Raises:
        InputError: A name is an input and the place of others.
    """
    tree: dict[str, Any] = {}
    for number, name in enumerate(names):
        *path, last = name.split(".")
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {}) if isinstance(inner, dict) else inner
        if not isinstance(inner, dict) or last in inner:
            raise InputError(f"--input {name}: another input has that place", "Give each input a name of its own.")
        inner[last] = Slot(number)
    return {name: _as_lists(value) for name, value in tree.items()}


def flat_axes(axes: Any, name: str = "") -> Iterator[tuple[str, AxisNames]]:
    """Yields the name and the axes of each input from nested names of axes."""
    if isinstance(axes, Mapping):
        for key, inner in axes.items():
            yield from flat_axes(inner, f"{name}.{key}" if name else str(key))
    elif not isinstance(axes, list | tuple) or not all(isinstance(axis, _AXES) for axis in axes):
        message = f"dynamic takes names of axes for {name}, None for a static one, and was given {wording(axes)}"
        raise InputError(message, f'Write dynamic={{"{name}": ("batch", None, "height", "width")}}.')
    elif any(isinstance(axis, Mapping | list | tuple) for axis in axes):
        yield from flat_axes(dict(enumerate(axes)), name)
    else:
        yield name, tuple(axes)


def _as_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _as_lists(part) for key, part in value.items()}
    return list(inner.values()) if list(inner) == [str(n) for n in range(len(inner))] else inner


def _filled(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, Slot):
        return tensors[value.number]
    parts = dict(_parts(value))
    return _with(value, {key: _filled(part, tensors) for key, part in parts.items()}) if parts else value


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields key and value of all that a container has in it."""
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type | Slot):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def _with(value: Any, parts: Mapping[Any, Any]) -> Any:
    """Returns a container of the same kind with other parts."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*parts.values())
    if isinstance(value, list | tuple):
        return type(value)(parts.values())
    result = copy.copy(value)
    for key, part in parts.items():
        if isinstance(value, Mapping):
            result[key] = part
        else:
            object.__setattr__(result, key, part)  # a dataclass may be frozen
    return result
