"""Tensors as documents describe them."""

from __future__ import annotations

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class TensorInfo(Document):
    """An input or output of an engine. `shape` has -1 where the size is dynamic."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
