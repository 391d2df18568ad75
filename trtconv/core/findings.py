"""What trtconv has to say about a model: `Finding`, its `Severity` and its `Location`."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

from trtconv.core.decode import decoded
from trtconv.core.encode import Document
from trtconv.core.errors import in_python
from trtconv.core.frozen import frozen


class Severity(enum.Enum):
    """How bad a finding is; ordered, so that `max` finds the worst."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Position from mild to bad."""
        return list(Severity).index(self)

    def __lt__(self, other: Severity) -> bool:
        return self.rank < other.rank


@frozen
class Location:
    """Where in the ONNX graph a finding is.

    Args:
        graph: Path of the graph: "" for the main graph, "if_node/then_branch" for a subgraph.
        index: Position of the node in that graph's node list; None where no node is meant.
        node: Node name, possibly empty.
        op: Operator type.
        tensor: Tensor or dimension that is meant, if one is.
        source: Line of Python that the node was exported from, "unet.py:12", where the model says.
    """

    graph: str = ""
    index: int | None = None
    node: str = ""
    op: str = ""
    tensor: str = ""
    source: str = ""

    def __str__(self) -> str:
        where = self.graph or "graph"
        if self.index is not None:
            where += f"/node[{self.index}]"
        if self.op:
            where += f" {self.op}"
        if self.node:
            where += f' "{self.node}"'
        if self.tensor:
            where += f" tensor {self.tensor}"
        return where


@frozen
class Finding(Document):
    """One verdict about a model.

    Args:
        code: Rule code such as "TC101"; codes are never reused.
        name: The rule's name, for example "output-padding-exceeds-pads".
        message: What is wrong, with the numbers.
        severity: How bad it is on the target that was asked about.
        location: Where.
        fix: What to do, in one sentence; empty where nothing can be said.
        mended_by: Name of the pass that mends it exactly, or None.
    """

    code: str
    name: str
    message: str
    severity: Severity
    location: Location = Location()
    fix: str = ""
    mended_by: str | None = None

    @property
    def python_fix(self) -> str:
        """What to do, with arguments of requests in the place of flags."""
        return in_python(self.fix)

    @property
    def fault(self) -> tuple[str, str, str, str]:
        """What makes two findings the same fault, also after nodes have moved."""
        place = self.location
        return self.code, place.graph, place.node or str(place.index), place.tensor


@frozen
class Ignored:
    """A finding that was asked to be left out, and why.

    Args:
        reason: As the configuration gives it; empty for one ignored on the command line.
    """

    finding: Finding
    reason: str = ""

    def to_json(self) -> dict[str, object]:
        """Returns the finding as plain JSON values, with the reason."""
        return {**self.finding.to_json(), "reason": self.reason}

    @classmethod
    def from_json(cls, value: Any) -> Ignored:
        """Reads what `to_json` makes."""
        return cls(decoded(Finding, value), decoded(_Reason, value).reason)


@frozen
class _Reason:
    """Why a finding was asked to be left out."""

    reason: str = ""


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Returns the highest severity, or None where there is no finding."""
    return max((f.severity for f in findings), default=None)


def summarize(findings: Iterable[Finding]) -> dict[str, int]:
    """Counts findings by severity: `{"errors": n, "warnings": n, "infos": n}`."""
    counts = {"errors": 0, "warnings": 0, "infos": 0}
    for finding in findings:
        counts[finding.severity.value + "s"] += 1
    return counts
