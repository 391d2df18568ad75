"""What `trtconv quantize` found."""

from __future__ import annotations

from typing import Any

from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.encode import Document
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.target import Target


@frozen
class Layerwise(Document):
    """A layer, and what became of it.

    Args:
        node: Its name.
        op: Its operator.
        reason: Why it is in float; empty where it is quantised.
    """

    node: str
    op: str
    reason: str = ""


@frozen
class QuantizeReport(
    Document,
    keys="schema model output target=target_name edits skipped quantized left_in_float notes error per_layer "
    "calibration budget findings tolerance seconds exit_code",
):
    """What `trtconv quantize` did.

    Args:
        model: Path and SHA-256 of the float model.
        output: The file written; None where the error is above the tolerance.
        target: What it is for.
        edits: What was rewritten before quantising.
        skipped: What passes left alone, and why.
        quantized: Layers in int8.
        left_in_float: Layers with weights that stay in float, and why.
        notes: What is to be known of the engine's speed, in words.
        error: Output to {"rms", "cosine"} against the float model, on samples that calibration did not see.
        per_layer: The same of the result of every quantised layer, in the order of the graph.
        calibration: Samples, their sizes, the method, and the error of each method that was tried.
        budget: What `--budget` came to; None where it was not asked for.
        findings: What check says of the quantised model.
        tolerance: The error (rms) that was allowed.
    """

    model: FileIdentity
    output: FileIdentity | None
    target: Target
    edits: tuple[Edit, ...]
    skipped: tuple[Skip, ...]
    quantized: tuple[Layerwise, ...]
    left_in_float: tuple[Layerwise, ...]
    notes: tuple[str, ...]
    error: dict[str, dict[str, float]]
    per_layer: tuple[dict[str, Any], ...]
    calibration: dict[str, Any]
    budget: dict[str, Any] | None
    findings: tuple[Finding, ...]
    tolerance: float
    seconds: dict[str, float]
    exit_code: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain JSON values; `output` is empty where nothing was written."""
        return {**super().to_json(), "output": {} if self.output is None else self.output.to_json()}

    @property
    def target_name(self) -> str:
        """The target as text."""
        return str(self.target)
