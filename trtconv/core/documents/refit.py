"""What `trtconv refit` did."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.proof import BuildProof
from trtconv.core.encode import Document
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen


@frozen
class RefitRecord(Document):
    """Where the weights of a refitted engine were put in; part of its report.

    Args:
        engine: The engine that it was before.
        model: The model that this one was built from, or refitted with.
        weights: How many weights the engine was given.
        changed: How many of them have other values than before.
    """

    engine: FileIdentity
    model: FileIdentity
    weights: int
    changed: int


@frozen
class RefittedWeight(Document, keys="layer role from=sources changed"):
    """A weight that the engine was given.

    Args:
        layer: Its layer.
        role: Which of the layer's weights it is, in TensorRT's words: "KERNEL".
        sources: The initializers that it is, or is computed from; none for a constant that the parser makes itself.
        changed: Whether it has other values than before.
    """

    layer: str
    role: str
    sources: tuple[str, ...]
    changed: bool


@frozen
class RefitReport(
    Document, keys="schema engine model before runtime weights proof findings signed_by seconds exit_code"
):
    """What a refit did.

    Args:
        engine: The engine with the new weights; None where the network was found to differ, and none was written.
        model: The model that they are from.
        before: The engine and the model that they replace, with counts.
        runtime: The TensorRT that refitted.
        weights: Every weight that the engine was given.
        proof: What was proven of the network with the new weights; None where nothing was to be.
        findings: Where it differs.
        signed_by: Fingerprint of the key that signed the new report; None where none did.
        seconds: Wall time by stage, in seconds.
        exit_code: 0 refitted; 1 the network differs.
    """

    engine: FileIdentity | None
    model: FileIdentity
    before: RefitRecord
    runtime: RuntimeIdentity
    weights: tuple[RefittedWeight, ...]
    proof: BuildProof | None = None
    findings: tuple[Finding, ...] = ()
    signed_by: str | None = None
    seconds: Mapping[str, float] | None = None
    exit_code: int = 0
