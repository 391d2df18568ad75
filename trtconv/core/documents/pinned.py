"""Nodes with types of their own, as a build found them."""

from __future__ import annotations

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class Pinned(Document):
    """What one `--node-precision` came to.

    Args:
        pattern: The name or the pattern.
        type: The type.
        nodes: The nodes that are computed in it for that.
        idle: How many others the pattern means that compute no floats, or have a type by the model.
    """

    pattern: str
    type: str
    nodes: tuple[str, ...]
    idle: int = 0

    def __str__(self) -> str:
        count = f"{len(self.nodes)} node{'' if len(self.nodes) == 1 else 's'}"
        others = f", and {self.idle} that cannot have it" if self.idle else ""
        return f"--node-precision {self.pattern}={self.type}: {count}{others}"
