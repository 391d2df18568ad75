"""What verify found; no numbers are made here."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Any

from trtconv.core.decode import Measured, fields_of
from trtconv.core.dims import Shape
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity, UnprovenLayer
from trtconv.core.documents.proof import BuildProof, ProofRecord, WorstOutput
from trtconv.core.encode import Document
from trtconv.core.findings import Finding, Severity
from trtconv.core.frozen import frozen


@frozen
class Tolerance(Document):
    """How far the outputs of an engine may be from those of its model.

    Args:
        relative: Largest difference of an element, as a part of the largest magnitude of the output.
        cosine: Smallest cosine similarity of the whole output.
        mismatches: Share of the elements that may differ by more than `relative`.
    """

    relative: float
    cosine: float
    mismatches: float = 0.0


class Verdict(enum.Enum):
    """What a comparison came to."""

    PASSED = "passed"
    BEYOND = "beyond"
    """Elements are beyond the tolerance, or the whole has another direction."""
    NOT_FINITE = "not-finite"
    """Elements are NaN or infinite that are finite in the reference."""
    REFERENCE_NOT_FINITE = "reference-not-finite"
    """The reference has nothing but NaN and infinities, which shows nothing."""
    SHAPE = "shape"
    VALUES = "values"
    """Values that are not numbers differ."""
    MISSING = "missing"
    """There is nothing to compare with."""

    @property
    def refutes(self) -> bool:
        """Whether it speaks against what was compared."""
        return self not in (Verdict.PASSED, Verdict.REFERENCE_NOT_FINITE)


@frozen
class Difference(Document, keys="name dtype shape max_abs max_rel cosine psnr mismatches verdict why passed"):
    """How far an output is from what it should be. Numbers are about the elements that are finite in the reference.

    Args:
        name: The output.
        dtype: Type of the reference.
        shape: Shape of the reference.
        max_abs: Largest difference of an element.
        max_rel: The same, over the largest magnitude of the reference.
        cosine: Cosine similarity; 1 where both are all zero.
        psnr: Peak signal-to-noise ratio in dB, the largest magnitude of the reference being the peak; infinite where
            nothing differs.
        mismatches: Share of the elements that differ by more than the tolerance, or are finite in only one.
        verdict: What this comes to.
        why: The verdict in words, with the numbers; empty where the output is within the tolerance.
    """

    name: str
    dtype: str = ""
    shape: Shape = ()
    max_abs: Measured = math.nan
    max_rel: Measured = math.nan
    cosine: Measured = math.nan
    psnr: Measured = math.nan
    mismatches: Measured = math.nan
    verdict: Verdict = Verdict.PASSED
    why: str = ""

    @property
    def passed(self) -> bool:
        """Whether the output is within the tolerance."""
        return self.verdict is Verdict.PASSED

    @classmethod
    def from_json(cls, value: Any) -> Difference:
        """Reads it, also as written by a trtconv that had no verdicts."""
        difference = cls(**fields_of(cls, value))
        has_verdict = "verdict" in value or value.get("passed", True)
        return difference if has_verdict else dataclasses.replace(difference, verdict=Verdict.BEYOND)


INCOMPLETE = 4
"""The exit code where not all was compared that had to be, and nothing is beyond the tolerance."""
REQUIRED_SIZES = frozenset({"min", "opt", "max", "inputs"})
"""Names of sizes that are not drawn at random."""


@frozen
class VerifyCase(Document, keys="profile size shapes seed outputs passed skipped saved-"):
    """What was compared at one size.

    Args:
        profile: Index of the optimization profile.
        size: "min", "opt", "max", "random 1", "inputs".
        shapes: Input name to its shape.
        seed: Of the inputs.
        outputs: How far each output is off; empty where nothing could be compared.
        passed: Whether all are within the tolerance; None where nothing could be compared.
        skipped: Why nothing could be, or not all; None where all was.
        saved: File that has the tensors; None where they were not to be kept.
    """

    profile: int = 0
    size: str = ""
    shapes: Mapping[str, Shape] = dataclasses.field(default_factory=dict)
    seed: int = 0
    outputs: tuple[Difference, ...] = ()
    passed: bool | None = None
    skipped: str | None = None
    saved: str | None = None

    @property
    def is_required(self) -> bool:
        """Whether it must be compared; sizes that were drawn may be left out."""
        return self.size in REQUIRED_SIZES


@frozen
class WorstCase(Document):
    """The output that is furthest off, and where."""

    max_rel: Measured
    output: str
    profile: int
    size: str


@frozen
class NodePlace(Document):
    """A node of the main graph."""

    index: int
    name: str
    op: str


@frozen
class TensorDifference(Document):
    """How far a tensor inside the network is off."""

    tensor: str
    max_rel: Measured
    cosine: Measured
    passed: bool


@frozen
class Bisection(Document):
    """What was found by looking for the first tensor that diverges.

    Args:
        tensor: Its name; None where none was found.
        node: The node that makes it.
        said: What is known of it, in lines for people.
        why: Why none was found.
        differences: Of the tensors that were looked at.
    """

    tensor: str | None = None
    node: NodePlace | None = None
    said: tuple[str, ...] = ()
    why: str = ""
    differences: tuple[TensorDifference, ...] = ()


@frozen
class Disagreement(Document):
    """Where an engine does not agree with itself.

    Args:
        check: "twice", "rows" or "profiles".
        output: The output.
        why: How far it is off, in words.
    """

    check: str
    output: str
    why: str


@frozen
class VerifyReport(
    Document,
    keys="schema model against engine ran why_not_run runtime precision tolerance verified "
    "incomplete? worst cases proof parsed? findings? self_check bisect seconds exit_code",
):
    """What `trtconv verify` found.

    Args:
        model: The model.
        against: What it was compared with instead of the model; None where it was the model.
        engine: The engine; None where there is none.
        ran: What was compared with the model: "engine"; "network", what TensorRT's parser made, run without a GPU;
            "rewritten model" where that could not be run either.
        why_not_run: Why the engine was not run; None where it was.
        runtime: What ran it; None where nothing did.
        precision: Whose tolerances hold.
        tolerance: The limits.
        cases: One a size.
        bisect: The first tensor that diverges; None where it was not looked for.
        seconds: Wall time by stage.
        layers: How many layers of the network were run, where it was.
        unproven: Those that were not.
        self_check: Where the engine does not agree with itself; None where that was not asked.
        incomplete: Why not all that should be was compared; empty where it was.
        parsed: What `--prove` showed of the network that TensorRT parses of the model as it was built; None where that
            was not asked.
        findings: What that proof found.
    """

    ran: str
    engine: FileIdentity | None
    cases: tuple[VerifyCase, ...] = ()
    model: FileIdentity = FileIdentity("")
    why_not_run: str | None = None
    runtime: RuntimeIdentity | None = None
    precision: str = ""
    tolerance: Tolerance = Tolerance(0.0, 1.0)
    against: FileIdentity | None = None
    bisect: Bisection | None = None
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    incomplete: str = ""
    layers: int = 0
    unproven: tuple[UnprovenLayer, ...] = ()
    self_check: tuple[Disagreement, ...] | None = None
    parsed: BuildProof | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def proof(self) -> ProofRecord:
        """What was proven, as `build` and `check` tell it."""
        names = {"engine": "engine", "network": "network"}
        compared = [case for case in self.cases if case.passed is not None]
        worst = self.worst
        return ProofRecord(
            names.get(self.ran, "rewritten"),
            len(compared),
            self.layers,
            self.unproven,
            None if worst is None else worst.max_rel,
            None if worst is None else WorstOutput(worst.output, worst.size),
            all(case.passed for case in compared) if compared else None,
        )

    @property
    def verified(self) -> bool:
        """Whether every size that had to be was compared, and is within the tolerance."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """1 where an output is beyond the tolerance or a proof fails, 4 where not all could be compared, else 0."""
        if any(case.passed is False for case in self.cases) or self.self_check:
            return 1
        if any(finding.severity is Severity.ERROR for finding in self.findings):
            return 1
        return INCOMPLETE if self.incomplete or not self.cases else 0

    @property
    def worst(self) -> WorstCase | None:
        """The output that is furthest off, and where; None where nothing could be compared."""
        candidates = [
            WorstCase(output.max_rel, output.name, case.profile, case.size)
            for case in self.cases
            for output in case.outputs
            if not math.isnan(output.max_rel)
        ]
        return max(candidates, key=lambda candidate: candidate.max_rel, default=None)
