"""A module's own attributes, put back after a run: what forward caches at one size must not reach another size."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch

_HELD = ("_parameters", "_buffers", "_modules")
_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)
"""What forward may fill, among it the hooks that a module is given when it runs first (OrderedDict)."""


@contextlib.contextmanager
def restored(module: torch.nn.Module) -> Iterator[None]:
    """Leaves a module and its submodules with the attributes and buffers that they had, whatever runs meanwhile.

    Submodules that made parameters or buffers meanwhile (lazy ones) keep them, and all else of theirs.
    """
    if isinstance(module, torch.jit.ScriptModule):
        yield
        return
    parts = [each for each in module.modules() if not isinstance(each, torch.jit.ScriptModule)]
    before = [(each, type(each), _held(each), _snapshot(vars(each))) for each in parts]
    contents = [(each, each._version, each.clone()) for each in module.buffers() if not each.is_meta]
    try:
        yield
    finally:
        for each, kind, held, attributes in before:
            if type(each) is kind and all(held[key].keys() == own.keys() for key, own in _held(each).items()):
                _put_back(vars(each), attributes)
                for key, value in held.items():
                    vars(each)[key].update(value)
        for tensor, version, content in contents:
            if tensor._version != version and tensor.shape == content.shape:
                with torch.no_grad():
                    tensor.copy_(content)


def versions(module: torch.nn.Module) -> dict[str, tuple[int, int]]:
    """Returns, by name, something of every buffer that changes when it is written or replaced."""
    return {name: (id(buffer), buffer._version) for name, buffer in module.named_buffers()}


def _held(module: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """Returns what a module holds, by kind and name."""
    return {kind: dict(vars(module)[kind]) for kind in _HELD}


def _snapshot(attributes: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns every attribute, with a copy of its content where it is a container that forward may fill."""
    return {
        name: (value, value.copy() if type(value) in _CONTAINERS else None)
        for name, value in attributes.items()
        if name not in _HELD
    }


def _put_back(attributes: dict[str, Any], before: dict[str, tuple[Any, Any]]) -> None:
    for name in [name for name in attributes if name not in before and name not in _HELD]:
        del attributes[name]
    for name, (value, content) in before.items():
        attributes[name] = value
        if content is None:
            continue
        value.clear()
        if isinstance(value, list | deque):
            value.extend(content)
        else:
            value.update(content)
