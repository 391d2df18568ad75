"""What `rewrite` did, and the edits of which every rewrite is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trtconv.core.decode import Measured
from trtconv.core.dims import Shape
from trtconv.core.documents.parts import FileIdentity
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
class Comparison(Document, keys="max_relative_error why inputs alone-"):
    """A rewritten model beside the original, on ONNX Runtime.

    Args:
        max_relative_error: Largest difference over the largest magnitude of the original's output; None where they were
            not compared.
        why: Why they were not; None where they were.
        inputs: The shapes that were run.
        alone: The shapes that only the rewritten model was run at; None where no sizes were freed.
    """

    max_relative_error: Measured | None
    why: str | None
    inputs: Mapping[str, Shape] = dataclasses.field(default_factory=dict)
    alone: tuple[Mapping[str, Shape], ...] | None = None


@frozen
class RewriteReport(
    Document, keys="schema model output edits skipped verified=largest_error verification=verified exit_code"
):
    """What `trtconv rewrite` did.

    Args:
        model: Path and SHA-256 of the original.
        output: Path, SHA-256 and bytes of the file written.
        verified: The rewritten model beside the original, on ONNX Runtime.
    """

    model: FileIdentity
    output: FileIdentity | None
    edits: tuple[Edit, ...]
    skipped: tuple[Skip, ...]
    verified: Comparison
    exit_code: int = 0

    def to_json(self) -> dict[str, object]:
        """Returns the report as plain JSON values; `output` is empty where nothing was written."""
        return {**super().to_json(), "output": {} if self.output is None else self.output.to_json()}

    @property
    def largest_error(self) -> float | None:
        """Largest relative error against the original; None where they were not compared."""
        return self.verified.max_relative_error
