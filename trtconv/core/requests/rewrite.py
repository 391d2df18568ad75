"""What `rewrite` is asked, and what it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trtconv.core.frozen import frozen
from trtconv.core.options import option
from trtconv.core.requests.common import REQUANTIZE, SCHEMA, TARGET, as_paths
from trtconv.core.target import Target


@frozen
class Edit:
    """One change that a pass made.

    Args:
        pass_name: The pass.
        node: Name of the node that was rewritten.
        what: What was done, in words.
    """

    pass_name: str
    node: str
    what: str

    def to_json(self) -> dict[str, str]:
        """Returns the edit as plain JSON values."""
        return {"pass": self.pass_name, "node": self.node, "what": self.what}


@frozen
class Skip:
    """A node that a pass looked at and left alone, and why."""

    pass_name: str
    node: str
    reason: str

    def to_json(self) -> dict[str, str]:
        """Returns the skip as plain JSON values."""
        return {"pass": self.pass_name, "node": self.node, "reason": self.reason}


@frozen
class RewriteRequest:
    """A call of `trtconv rewrite`.

    Args:
        model: The .onnx file; never written.
        output: Where the rewritten model goes.
        only: Names of the only passes to run; empty means all.
        skip: Names of passes to leave out.
    """

    model: Path
    output: Path
    only: tuple[str, ...] = option(
        "--only", "Run this pass and no other. Repeatable.", metavar="PASS", many=True, default=()
    )
    skip: tuple[str, ...] = option("--skip", "Leave this pass out. Repeatable.", metavar="PASS", many=True, default=())
    target: Target | None = TARGET
    requantize: bool = REQUANTIZE

    def __post_init__(self) -> None:
        as_paths(self)


@frozen
class RewriteReport:
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

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain JSON values."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "output": self.output,
            "edits": [edit.to_json() for edit in self.edits],
            "skipped": [skip.to_json() for skip in self.skipped],
            "verified": self.verified["max_relative_error"],
            "verification": self.verified,
            "exit_code": self.exit_code,
        }
