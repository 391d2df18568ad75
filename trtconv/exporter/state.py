"""A module's own attributes, put back after a run: what forward caches at one size must not reach another size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

_HELD = ("_parameters", "_buffers", "_modules")


@contextlib.contextmanager
def restored(module: torch.nn.Module) -> Iterator[None]:
    """Leaves a module and its submodules with the attributes that they had, whatever runs meanwhile.

    Submodules that made parameters or buffers meanwhile (lazy ones) keep them, and all else of theirs.
    """
    if isinstance(module, torch.jit.ScriptModule):
        yield
        return
    before = [(each, type(each), _held(each), _snapshot(vars(each))) for each in module.modules()]
    try:
        yield
    finally:
        for each, kind, held, attributes in before:
            if type(each) is kind and _held(each) == held:
                _put_back(vars(each), attributes)


def _held(module: torch.nn.Module) -> list[tuple[str, int]]:
    """Returns what a module holds, by name and identity."""
    return [(name, id(value)) for kind in _HELD for name, value in vars(module)[kind].items()]


def _snapshot(attributes: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns every attribute, with a copy of its content where it is a container that forward may fill."""
    return {
        name: (value, value.copy() if type(value) in (dict, list, set) else None)
        for name, value in attributes.items()
        if name not in _HELD
    }


def _put_back(attributes: dict[str, Any], before: dict[str, tuple[Any, Any]]) -> None:
    for name in [name for name in attributes if name not in before and name not in _HELD]:
        del attributes[name]
    for name, (value, content) in before.items():
        attributes[name] = value
        if isinstance(value, list) and content is not None:
            value[:] = content
        elif content is not None:
            value.clear()
            value.update(content)
