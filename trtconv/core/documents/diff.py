"""What is otherwise between two engines, as `trtconv diff` tells it."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.core.decode import Measured
from trtconv.core.dims import Shape
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen
from trtconv.core.requests.base import Bounds


@frozen
class OptionPair(Document):
    """An option that is otherwise; None where an engine has none of that name."""

    name: str
    a: str | None
    b: str | None


@frozen
class NumberPair(Document):
    """Bytes, or numbers of layers."""

    name: str
    a: int
    b: int


@frozen
class ProfileChange(Document):
    """The named dimensions of both engines' profiles; `lost` are those of A that no profile of B takes."""

    a: tuple[Bounds, ...]
    b: tuple[Bounds, ...]
    same: bool
    lost: tuple[int, ...]


@frozen
class RewriteKey(Document, keys="pass=pass_name node what"):
    """What tells a rewrite from others."""

    pass_name: str
    node: str
    what: str

    def __str__(self) -> str:
        return f"{self.pass_name} {self.node} {self.what}"


@frozen
class FindingKey(Document):
    """What tells a finding from others."""

    severity: str
    code: str
    node: str

    def __str__(self) -> str:
        return f"{self.severity} {self.code} {self.node}"


@frozen
class RewriteChange(Document):
    """Rewrites that B has and A has not, and the other way round."""

    added: tuple[RewriteKey, ...]
    removed: tuple[RewriteKey, ...]


@frozen
class FindingChange(Document):
    """Findings that B has and A has not, and the other way round."""

    added: tuple[FindingKey, ...]
    removed: tuple[FindingKey, ...]


@frozen
class LayerChange(Document):
    """How many layers there are, and how many in each precision."""

    a: int
    b: int
    precisions: tuple[NumberPair, ...]


@frozen
class TacticChange(Document):
    """A layer that has another tactic; None where an engine has no such layer.

    Args:
        layer: TensorRT's name of it.
        profile: Position of the optimization profile.
        a: The tactic, in hexadecimal; of tactics of one number in different layouts, with the layout of the tensors.
        b: The same of the other engine.
    """

    layer: str
    profile: int
    a: str | None
    b: str | None


@frozen
class ErrorPair(Document):
    """The largest relative errors of an output, measured in the same way."""

    of: str
    output: str
    a: Measured
    b: Measured


@frozen
class LatencyPair(Document):
    """Medians at one size, in microseconds."""

    size: str
    shapes: Mapping[str, Shape]
    graph: bool
    a: float
    b: float


@frozen
class Regression(Document):
    """What is worse: the part of the document, and what it is in words."""

    what: str
    message: str


@frozen
class DiffReport(
    Document,
    keys="schema a b tolerance options profiles rewrites findings layers tactics numerics latency sizes regressions "
    "exit_code",
):
    """What is otherwise between two engines.

    Args:
        a: The report of the engine as it was.
        b: That of the engine as it is.
        tolerance: By what part of A's value time, size, memory and errors may grow.
        layers: None where one of the engines was not inspected.
        tactics: Layers that have another tactic; None where one of the reports does not tell of tactics.
    """

    a: str
    b: str
    tolerance: float
    options: tuple[OptionPair, ...]
    profiles: ProfileChange
    rewrites: RewriteChange
    findings: FindingChange
    layers: LayerChange | None
    numerics: tuple[ErrorPair, ...]
    latency: tuple[LatencyPair, ...]
    sizes: tuple[NumberPair, ...]
    regressions: tuple[Regression, ...] = ()
    tactics: tuple[TacticChange, ...] | None = None

    @property
    def exit_code(self) -> int:
        """1 where there is a regression, else 0."""
        return 1 if self.regressions else 0
