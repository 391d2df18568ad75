"""What is doubtful about the samples that a network was calibrated and measured with."""

from __future__ import annotations

import enum

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


class DoubtKind(enum.Enum):
    """How samples mislead."""

    CONSTANT = "constant"
    IDENTICAL = "identical"
    OUTLYING = "outlying"
    FEW = "few"


@frozen
class Doubt(Document):
    """Why samples may mislead.

    Args:
        kind: How.
        samples: What they are called: files, with numbers where one has several.
        message: The same in words.
    """

    kind: DoubtKind
    samples: tuple[str, ...]
    message: str
