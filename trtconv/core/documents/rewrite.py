"""What `rewrite` did, and the edits of which every rewrite is made."""

from __future__ import annotations

from typing import Any

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class Edit(Document, keys="pass=pass_name node what"):
    """One change that a pass made.

    Args:
        pass_name: The pass.
        node: Name of the node that was rewritten.
        what: What was done, in words.
    """

    pass_name: str
    node: str
    what: str


@frozen
class Skip(Document, keys="pass=pass_name node reason"):
    """A node that a pass looked at and left alone, and why."""

    pass_name: str
    node: str
    reason: str


@frozen
class RewriteReport(
    Document, keys="schema model output edits skipped verified=largest_error verification=verified exit_code"
):
    """What `trtconv rewrite` did.

    Args:
        model: Path and SHA-256 of the original.
        output: Path, SHA-256 and bytes of the file written.
        verified: {"max_relative_error": largest error against the original on ONNX Runtime or None, "why": reason
            for None, "inputs": shapes that were run}, and where sizes were freed "alone": shapes at which only the
            rewritten model was run.
    """

    model: dict[str, Any]
    output: dict[str, Any]
    edits: tuple[Edit, ...]
    skipped: tuple[Skip, ...]
    verified: dict[str, Any]
    exit_code: int = 0

    @property
    def largest_error(self) -> float | None:
        """Largest relative error against the original; None where they were not compared."""
        error: float | None = self.verified["max_relative_error"]
        return error
