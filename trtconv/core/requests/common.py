"""What several requests and reports share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.dims import Range
from trtconv.core.frozen import frozen

SCHEMA = 1
"""Version of every JSON document that trtconv writes; raised when a key changes its meaning."""


PRECISIONS = ("as-is", "fp16", "bf16", "int8")


@frozen
class TensorInfo:
    """An input or output of an engine. `shape` has -1 where the size is dynamic."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the tensor as plain JSON values."""
        return {"name": self.name, "kind": self.kind, "dtype": self.dtype, "shape": list(self.shape)}


Bounds = Mapping[str, Range]
"""Dimension name or INPUT:AXIS to its range."""


def as_paths(request: object, *names: str) -> None:
    """Lets callers of the Python API write paths as text."""
    for name in names:
        value = getattr(request, name)
        if isinstance(value, str):
            object.__setattr__(request, name, Path(value))
