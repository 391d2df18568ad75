"""What `build --as` takes of an engine that was built before."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trtconv.core.documents.tactics import Tactic, require_bounded
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class BuiltBefore(Document):
    """An engine that was built before.

    Args:
        family: That of the TensorRT that built it.
        version: Its full version.
        tactics: Which tactic each layer got.
        forms: The forms of nodes that are not the usual ones, by name.
    """

    family: str
    version: str
    tactics: tuple[Tactic, ...]
    forms: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        require_bounded(self.tactics)
