"""Several modules that are exported in one go, and what flows between them. Knows nothing of torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.suggest import did_you_mean


@frozen
class OutputOf:
    """An input that an earlier part makes.

    Args:
        tensor: "encoder.hidden", the part and its output; the part alone where it has one output.
    """

    tensor: str


@frozen
class ExportPart:
    """One of the modules of a pipeline; a SPEC may return a list of them.

    Args:
        name: Its name, which its file has too: MODEL.NAME.onnx.
        module: The module.
        inputs: Parameters of forward to their examples, tensors, or to what an earlier part makes, an `OutputOf`.
            Parts that name the same parameter get the same input.
        dynamic: Parameter to the names of its axes, None for a static one. Those of an `OutputOf` are what the earlier
            part makes of its own, where they are not named here.
        outputs: Names of the outputs in order; default: the keys of a dict, or "output".
    """

    name: str
    module: Any
    inputs: Mapping[str, Any]
    dynamic: Mapping[str, Sequence[str | None]] = dataclasses.field(default_factory=dict)
    outputs: tuple[str, ...] = ()


def is_parts(value: Any) -> bool:
    """Whether what a SPEC gives is parts."""
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(element, ExportPart) for element in value)


def require_order(parts: Sequence[ExportPart]) -> None:
    """Raises InputError for names that cannot be those of files, that are there twice, or flows from later parts."""
    before: list[str] = []
    for part in parts:
        if not part.name.isidentifier():
            raise InputError(f"part {part.name!r}: the name is not a word", "Use letters, digits and underscores.")
        if part.name in before:
            raise InputError(f"two parts are called {part.name}", "Give each its own name.")
        for parameter, value in part.inputs.items():
            if isinstance(value, OutputOf) and value.tensor.partition(".")[0] not in before:
                hint = did_you_mean(value.tensor.partition(".")[0], before, "Parts run in the order of the list.")
                raise InputError(f"{part.name}: no part before it makes {value.tensor!r} for {parameter}", hint)
        if not part.inputs:
            raise InputError(f"part {part.name} has no inputs", "Give an example for each parameter of forward.")
        before.append(part.name)
