"""What verify and run found of a model in parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trtconv.core.documents.inspect import TensorRecord
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.verify import Difference, Tolerance, VerifyCase, VerifyReport
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class PipelineCase(Document):
    """What was compared at one size.

    Args:
        case: The size, and how far the results of the whole are off.
        cut: How far the results of all parts on ONNX Runtime are off.
        engines: How far the tensors that engines make are off, given what the model has at their inputs.
    """

    case: VerifyCase
    cut: tuple[Difference, ...] = ()
    engines: tuple[Difference, ...] = ()

    @property
    def selects_otherwise(self) -> bool:
        """Whether all parts are right, and the whole still returns something else."""
        return self.case.passed is True and not all(output.passed for output in self.case.outputs)


@frozen
class PipelineVerifyReport(
    Document,
    keys="schema model pipeline ran why_not_run runtime tolerance verified incomplete? cases engines seconds exit_code",
):
    """What `trtconv verify MODEL.pipeline.json` found.

    Args:
        model: The whole model.
        pipeline: The document.
        ran: "engines"; or "parts", the parts of the model on ONNX Runtime, where its engines cannot be run.
        cases: One a size.
        why_not_run: Why the engines were not run; None where they were.
        runtime: What ran them.
        tolerance: The limits for what engines make.
        engines: What TensorRT's parser made of each engine's part, beside it, where the engine was not run.
        incomplete: Why not all that should be was compared; empty where it was.
        seconds: Wall time by stage.
    """

    model: FileIdentity
    pipeline: FileIdentity
    ran: str
    cases: tuple[PipelineCase, ...]
    why_not_run: str | None = None
    runtime: RuntimeIdentity | None = None
    tolerance: Tolerance = Tolerance(0.0, 1.0)
    engines: tuple[VerifyReport, ...] = ()
    incomplete: str = ""
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def verified(self) -> bool:
        """Whether every size was compared, and all that was is within the tolerance."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """1 where something is beyond the tolerance, 4 where not all could be compared, else 0."""
        codes = {engine.exit_code for engine in self.engines}
        if 1 in codes or any(row.case.passed is False for row in self.cases):
            return 1
        compared = self.cases and all(row.case.passed is not None for row in self.cases)
        return 0 if compared and not self.incomplete and codes <= {0} else 4


@frozen
class PartTime(Document):
    """How a part ran.

    Args:
        kind: Who ran it.
        file: Its file.
        profile: The optimization profile of its engine.
        seconds: Wall time, with copies from and to the host's memory.
    """

    kind: str
    file: str
    profile: int
    seconds: float


@frozen
class PipelineRunReport(Document, keys="schema pipeline runtime parts inputs outputs output seconds exit_code"):
    """What `trtconv run MODEL.pipeline.json` did; fields as in `RunReport`."""

    pipeline: FileIdentity
    runtime: RuntimeIdentity | None
    parts: tuple[PartTime, ...]
    inputs: Mapping[str, TensorRecord]
    outputs: Mapping[str, TensorRecord]
    output: str
    seconds: Mapping[str, float]
    exit_code: int = 0
