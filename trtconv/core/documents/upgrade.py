"""What another TensorRT makes of models, as `trtconv upgrade` tells it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

from trtconv.core.decode import Measured
from trtconv.core.documents.parts import RuntimeIdentity
from trtconv.core.documents.proof import BuildProof
from trtconv.core.encode import Document
from trtconv.core.findings import Finding, Severity
from trtconv.core.frozen import frozen


class Fate(enum.Enum):
    """What became of a model."""

    PROVEN = "proven"
    """Built, and all that was to be shown is shown."""
    BUILT = "built"
    """Built, and not all of it shown."""
    DIFFERS = "differs"
    """The parsed network does not compute what the model means."""
    RULED_OUT = "refused by a rule"
    PARSER_REFUSED = "refused by the parser"
    BUILDER_REFUSED = "refused by the builder"
    CRASHED = "crashed"
    TOO_LONG = "took too long"
    OUT_OF_MEMORY = "out of memory"
    NOT_TRIED = "not tried"
    """The model cannot be read, or what is asked does not fit it."""

    @property
    def good(self) -> bool:
        """Whether there is an engine."""
        return self in (Fate.PROVEN, Fate.BUILT)


class Effect(enum.Enum):
    """What an upgrade means for a model."""

    SAME = "same"
    CHANGED = "changed"
    """Parsed otherwise, with other numbers, or refused in another way."""
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    NOT_TRIED = "not tried"


@frozen
class ParsedLayer(Document):
    """A layer of a parsed network, in words.

    Args:
        name: Its name.
        kind: Its type, such as "CONVOLUTION".
        node: Name of the ONNX node that it came from; empty for what the parser added.
        attributes: Its attributes, and the types and sizes of its inputs and outputs; weights by their checksum.
    """

    name: str
    kind: str
    node: str
    attributes: Mapping[str, str]


@frozen
class BuildTrial(Document):
    """What one TensorRT made of a model.

    Args:
        fate: What became of it.
        why: Why it was not tried, or what ended the process; empty otherwise.
        hint: What to do then.
        exit_code: 2, 3 or 4 where it was not tried, as the command would end.
        findings: Verdicts about it.
        proof: What was proven; None where nothing was.
        seconds: Wall time by stage.
        engine_bytes: Size of the engine; None without one.
        layers: The parsed network; empty where the parser refused it.
    """

    fate: Fate
    why: str = ""
    hint: str = ""
    exit_code: int = 0
    findings: tuple[Finding, ...] = ()
    proof: BuildProof | None = None
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    engine_bytes: int | None = None
    layers: tuple[ParsedLayer, ...] = ()


@frozen
class TrialSummary(Document):
    """A trial without its network.

    Args:
        error: The largest relative error of the proof; None where nothing was compared.
        build_s: Seconds that the builder took; None where it was not asked.
        layers: How many layers were parsed.
        codes: Codes of the findings that are errors.
        hint: As of the trial, like all that is not told here.
    """

    fate: Fate
    why: str
    error: Measured | None
    build_s: float | None
    engine_bytes: int | None
    layers: int
    codes: tuple[str, ...]
    hint: str = ""
    exit_code: int = 0


@frozen
class AttributeChange(Document):
    """An attribute of a layer, or the types and sizes of its inputs or outputs, that is otherwise."""

    name: str
    before: str
    after: str


@frozen
class LayerDifference(Document):
    """A layer that is parsed otherwise.

    Args:
        node: The ONNX node that it came from, or the nearest one; empty where there is none.
        before: Its type; None for one that is new.
        after: Its type now; None for one that is gone.
        attributes: What is otherwise in a layer that is there on both sides.
    """

    node: str
    before: str | None
    after: str | None
    attributes: tuple[AttributeChange, ...] = ()

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.after} is new"
        if self.after is None:
            return f"{self.before} is gone"
        changes = (f"{attribute.name} from {attribute.before} to {attribute.after}" for attribute in self.attributes)
        return f"{self.after}: {', '.join(changes)}"


@frozen
class ModelUpgrade(Document):
    """A model on both sides.

    Args:
        model: Its path.
        layers: The layers that are parsed otherwise; empty where a side has no network.
        findings: The regressions, as errors (TC411), and networks that are parsed otherwise (TC412).
    """

    model: str
    change: Effect
    before: TrialSummary
    after: TrialSummary
    layers: tuple[LayerDifference, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def regressions(self) -> tuple[Finding, ...]:
        """What is worse."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)


@frozen
class UpgradeReport(Document, keys="schema trtconv from=before to=after models summary exit_code"):
    """What an upgrade means for models.

    Args:
        before: The TensorRT that is used today.
        after: The one that is to take its place.
        exit_code: 1 where a model is worse off, 2, 3 or 4 where one could not be tried.
    """

    before: RuntimeIdentity
    after: RuntimeIdentity
    models: tuple[ModelUpgrade, ...]
    exit_code: int

    def summary(self) -> dict[str, int]:
        """Counts the models by what the upgrade means for them."""
        return {effect.value: sum(row.change is effect for row in self.models) for effect in Effect}
