"""Loading a state dict into a module: never unpickling code, never half."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.exporter.module.source_line import first_line

_CONTAINERS = (
    "state_dict_ema",
    "model_ema",
    "params_ema",
    "ema",
    "state_dict",
    "model_state_dict",
    "model",
    "net",
    "params",
)
"""Where checkpoints keep their weights, averaged ones first: those are what is meant to be used."""
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
_LISTED = 8


def load_weights(module: torch.nn.Module, path: Path) -> tuple[str, ...]:
    """Loads every weight of a module from a file.

    Args:
        module: The module; changed in place.
        path: .safetensors, or anything that `torch.load(weights_only=True)` reads.

    Returns:
        Notes on what was unwrapped.

    Raises:
        InputError: The file cannot be read without running code, or keys or shapes do not match.
        EnvironmentMissing: The file is .safetensors and that package is not installed.
    """
    if not path.is_file():
        raise InputError(f"--weights {path}: there is no such file", "Give a .pt or .safetensors file.")
    state, notes = _unwrap(_read(path), path, set(module.state_dict()))
    own = module.state_dict()
    counts = {key: value for key, value in own.items() if key.endswith("num_batches_tracked")}
    state = {**counts, **state}  # older files have none, and no output depends on them
    _check_keys(path, state, own)
    module.load_state_dict(state)
    return notes


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        if importlib.util.find_spec("safetensors") is None:
            raise EnvironmentMissing(f"{path} needs the package safetensors", "pip install safetensors")
        from safetensors.torch import load_file

        reader: Any = load_file
    else:
        reader = _torch_load
    try:
        return reader(path)
    except Exception as error:
        message = first_line(error)
        if "Weights only" in message:
            message = "it holds more than tensors: a whole module, or objects of classes"
        raise InputError(
            f"--weights {path} cannot be read: {message}",
            "Only state dicts are loaded (weights_only): save module.state_dict(), not the module.",
        ) from error


def _torch_load(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True, mmap=None)


def _unwrap(value: Any, path: Path, names: set[str]) -> tuple[Mapping[str, torch.Tensor], tuple[str, ...]]:
    """Takes the state dict out of a checkpoint, and a common prefix off its keys."""
    notes = []
    steps: list[str] = []
    while isinstance(value, Mapping) and not _is_state(value):
        keys = [key for key in _CONTAINERS if isinstance(value.get(key), Mapping) and key not in names]
        inner = keys or [key for key, item in value.items() if isinstance(item, Mapping)]
        if not keys and len(inner) > 1:
            raise InputError(
                f"--weights {path} holds several: {_some(list(map(str, inner)))}", "Save one of them alone."
            )
        if not inner:
            break
        value = value[inner[0]]
        steps.append(str(inner[0]))
    if steps:
        notes.append(f"weights taken from {'/'.join(steps)!r} of {path.name}")
    if not isinstance(value, Mapping) or not _is_state(value):
        raise InputError(f"--weights {path} holds no state dict", "Save module.state_dict().")
    other = [key for key, item in value.items() if not isinstance(item, torch.Tensor)]
    if other:
        notes.append(f"left out of {path.name}, as no tensors: {_some(other)}")
    state = {key: item for key, item in value.items() if isinstance(item, torch.Tensor)}
    while prefix := next((p for p in _PREFIXES if all(key.startswith(p) for key in state)), ""):
        if names & set(state):
            break
        state = {key[len(prefix) :]: tensor for key, tensor in state.items()}
        notes.append(f"prefix {prefix!r} taken off the keys of {path.name}")
    return state, tuple(notes)


def _is_state(value: Mapping[Any, Any]) -> bool:
    """Whether a mapping is a state dict: names of tensors, and little else (a step, metadata)."""
    tensors = sum(isinstance(item, torch.Tensor) for item in value.values())
    return 2 * tensors > len(value) and all(isinstance(key, str) for key in value)


def _check_keys(path: Path, state: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor]) -> None:
    missing = [key for key in own if key not in state]
    unexpected = [key for key in state if key not in own]
    shapes = [
        f"{key} {tuple(state[key].shape)} for {tuple(own[key].shape)}"
        for key in own
        if key in state and state[key].shape != own[key].shape
    ]
    lines = [
        f"  {what}: {_some(keys)}"
        for what, keys in (("missing", missing), ("unexpected", unexpected), ("another shape", shapes))
        if keys
    ]
    if lines:
        raise InputError(
            "\n".join([f"--weights {path} does not match the module", *lines]),
            "Give the factory the arguments (--arg) that the weights were trained with.",
        )


def _some(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
    return ", ".join(keys[:_LISTED]) + more
