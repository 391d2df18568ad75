"""A module's own attributes, put back after a run: what forward caches at one size must not reach another size."""

from __future__ import annotations

import contextlib
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch

_HELD = ("_parameters", "_buffers", "_modules")
_CONTAINERS = frozenset((dict, OrderedDict, defaultdict, list, set, deque))
"""What forward may fill, among it the hooks that a module is given when it runs first (OrderedDict)."""


@contextlib.contextmanager
def restored(module: torch.nn.Module) -> Iterator[None]:
    """Leaves a module and its submodules with the attributes and buffers that they had, whatever runs meanwhile.

    Submodules that made parameters or buffers meanwhile (lazy ones) keep them, and all else of theirs.
    """
    if isinstance(module, torch.jit.ScriptModule):
        yield
        return
    parts = [part for part in module.modules() if not isinstance(part, torch.jit.ScriptModule)]
    before = [(part, type(part), _tables(part), dict(vars(part)), _contents(part)) for part in parts]
    buffers = [(buffer, buffer._version, buffer.clone()) for buffer in module.buffers() if not buffer.is_meta]
    try:
        yield
    finally:
        for part, kind, entries, attributes, contents in before:
            own = _tables(part)
            if type(part) is kind and all(a.keys() == b.keys() for a, b in zip(entries, own, strict=True)):
                _put_back(vars(part), attributes, contents)
                for key, old, new in zip(_HELD, entries, own, strict=True):
                    if not _same(old, new):
                        vars(part)[key].update(old)
        for tensor, version, content in buffers:
            if tensor._version != version and tensor.shape == content.shape:
                with torch.no_grad():
                    tensor.copy_(content)


def versions(module: torch.nn.Module) -> dict[str, tuple[int, int]]:
    """Returns, by name, something of every buffer that changes when it is written or replaced."""
    return {name: (id(buffer), buffer._version) for name, buffer in module.named_buffers()}


def _tables(module: torch.nn.Module) -> list[dict[str, object]]:
    """Returns copies of the three that hold what a module is made of."""
    attributes = vars(module)
    return [dict(attributes[kind]) for kind in _HELD]


def _contents(module: torch.nn.Module) -> list[tuple[Any, Any]]:
    """Returns every attribute that is a container which forward may fill, with a copy of what is in it."""
    containers = [value for name, value in vars(module).items() if type(value) in _CONTAINERS and name not in _HELD]
    # Most are empty: the hooks of a module without hooks.
    return [(value, value.copy() if value else ()) for value in containers]


def _same(old: dict[str, object], new: dict[str, object]) -> bool:
    """Whether two dictionaries hold the very same objects, in the same order."""
    return len(old) == len(new) and all(map(operator.is_, old.values(), new.values())) and [*old] == [*new]


def _put_back(attributes: dict[str, object], before: dict[str, object], contents: list[tuple[Any, Any]]) -> None:
    if not _same(before, attributes):
        for name in [name for name in attributes if name not in before and name not in _HELD]:
            del attributes[name]
        attributes.update((name, value) for name, value in before.items() if name not in _HELD)
    for value, content in contents:
        if not value and not content:
            continue
        value.clear()
        if isinstance(value, list | deque):
            value.extend(content)
        else:
            value.update(content)
