"""A proof in text."""

from __future__ import annotations

from collections import Counter

from trtconv.cli.formats.wording import count
from trtconv.core.documents.proof import BuildProof, WeightCounts
from trtconv.core.text import clean

_MOST_LACKING = 8
"""Reasons for which something was not shown, of each of which one line tells."""


def proof_lines(proof: BuildProof | None) -> list[str]:
    """Says what was proven of the parsed network, and which layers were not."""
    if proof is None:
        return []
    if proof.agrees is None:
        part = f"in part: {_run(proof)}, the whole" if proof.pieces.proven else "none, the parsed network"
        return [clean(f"proof: {part} was not compared with the model: {proof.why}")]
    verdict = "computes what the model means" if proof.agrees else "does not compute what the model means"
    far = f", largest relative error {error:.1e}" if (error := proof.max_relative_error) is not None else ""
    run = _run(proof)
    partly = "in part: " if proof.agrees and proof.missing else ""
    lines = [f"proof: {partly}what TensorRT parsed {verdict} ({run}{far})", *_weights_line(proof.weights)]
    kinds = Counter((layer.kind, layer.reason) for layer in proof.unproven)
    lines += [f"  not proven: {count(number, 'layer')} {kind}: {why}" for (kind, why), number in kinds.items()]
    lacking = Counter((gap.what.value, gap.reason) for gap in proof.missing)
    first = list(lacking.items())[:_MOST_LACKING]
    lines += [f"  not shown: {number} by {what}: {why}" for (what, why), number in first]
    if proof.why and (lacking or not proof.agrees):
        lines.append(f"  {proof.why}")
    return [clean(line) for line in lines]


def _run(proof: BuildProof) -> str:
    """Says what was shown how: pieces by their definition or by a run, and the whole."""
    pieces = proof.pieces
    parts = [f"{pieces.proven} of {count(pieces.of, 'piece')}"] if pieces.of else []
    if pieces.defined:
        parts.append("all by definition" if pieces.defined == pieces.of else f"{pieces.defined} by definition")
    if proof.sizes:
        parts.append(f"{count(proof.layers, 'layer')} run at {count(proof.sizes, 'size')}")
    elif pieces.defined < pieces.of:
        parts.append("the others each by itself" if pieces.defined else "each by itself")
    return ", ".join(parts) or "nothing was run"


def _weights_line(weights: WeightCounts | None) -> list[str]:
    """Says how many weights are the file's, bit for bit."""
    if weights is None or not weights.of:
        return []
    derived = f", {weights.derived} of them derived again" if weights.derived else ""
    return [f"  weights: {weights.equal + weights.derived} of {weights.of} are those of the file, bit for bit{derived}"]
