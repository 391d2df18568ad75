"""What `check` found."""

from __future__ import annotations

from trtconv.core.documents.memory import MemoryRecord
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.pipeline import PlannedCut
from trtconv.core.documents.proof import BuildProof
from trtconv.core.encode import SCHEMA, Document, plain
from trtconv.core.findings import Finding, Ignored, Severity, summarize
from trtconv.core.frozen import frozen
from trtconv.core.target import Target


@frozen
class ParserVerdict:
    """What the installed TensorRT says of a model.

    Args:
        runtime: Its family; None where there is none for the target.
        version: Full version string.
        accepted: Whether its parser takes the model; None where it was not asked.
        built: Whether its builder does; None where no engine was tried.
        why: Why it was not asked.
    """

    runtime: str | None = None
    version: str | None = None
    accepted: bool | None = None
    built: bool | None = None
    why: str | None = None


@frozen
class CheckReport(
    Document,
    keys="schema model target unbounded findings ignored summary proof memory partition- parser fail_on exit_code",
):
    """What `trtconv check` found.

    Args:
        model: Path and SHA-256.
        target: What was checked against.
        findings: Worst first, then by place.
        parser: What TensorRT says of the model, where it is installed.
        exit_code: 0, or 1 where a finding is at or above `fail_on`.
        ignored: Findings that were asked to be left out.
        fail_on: As in the request.
        unbounded: Dynamic dimensions that were given no bounds, so that no size was checked.
        proof: As in `BuildReport`.
        memory: What the network takes at the max of each profile; None where no bounds were given, or none are needed.
        partition: Where `build --partition` would cut the model; None where nobody asked.
    """

    model: FileIdentity
    target: Target
    findings: tuple[Finding, ...]
    parser: ParserVerdict
    exit_code: int
    ignored: tuple[Ignored, ...] = ()
    fail_on: Severity | None = Severity.ERROR
    unbounded: tuple[str, ...] = ()
    proof: BuildProof | None = None
    memory: MemoryRecord | None = None
    partition: PlannedCut | None = None

    def to_json(self) -> dict[str, object]:
        """Returns the report as plain JSON values."""
        return {**super().to_json(), "fail_on": "never" if self.fail_on is None else self.fail_on.value}

    def summary(self) -> dict[str, int]:
        """Counts the findings by severity."""
        return summarize(self.findings)


@frozen
class FailedRun:
    """One of several checks or builds that ended with an exception; fields as in the boundary's error document.

    Args:
        worker: Name of the machine of a farm where that was; None for this one.
        lost: "crash", "time" or "memory" where its process did not come to an end; not part of the document.
        findings: Why, one finding a cause, where it is known.
    """

    model: str
    target: str
    kind: str
    message: str
    hint: str
    exit_code: int
    worker: str | None = None
    lost: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def advice(self) -> str:
        """What to do, as a line of its own; empty where nobody knows."""
        return f"hint: {self.hint}" if self.hint else ""

    def to_json(self) -> dict[str, object]:
        """Returns the failure as plain JSON values."""
        error = {"type": self.kind, "message": self.message, "hint": self.hint}
        return {
            "schema": SCHEMA,
            "model": {"path": self.model},
            "target": self.target,
            **({"worker": self.worker} if self.worker else {}),
            "error": error,
            **({"findings": plain(self.findings)} if self.findings else {}),
            "exit_code": self.exit_code,
        }
