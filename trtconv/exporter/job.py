"""An export on its way: what is asked, and the drafts of the file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import onnx

from trtconv.core.frozen import frozen
from trtconv.core.requests.export import Attempt, Proof, SizeRule
from trtconv.core.stopwatch import Stopwatch
from trtconv.exporter import finish, writers
from trtconv.exporter.request import Axes, ExportOptions
from trtconv.exporter.sizes import output_dims
from trtconv.exporter.torch_module import Subject
from trtconv.exporter.trials import Trials
from trtconv.exporter.validate import Objection


@dataclasses.dataclass
class Job:
    """One export on its way.

    Args:
        subject: What is exported.
        axes: Its dynamic dimensions.
        trials: Its behaviour at other sizes.
        rules: What the trials showed.
        options: What was asked.
        clock: Times the stages.
        folder: Where files may lie while they are made.
    """

    subject: Subject
    axes: Axes
    trials: Trials
    rules: tuple[SizeRule, ...]
    options: ExportOptions
    clock: Stopwatch
    folder: Path
    joint: tuple[str, ...] = ()
    attempts: list[Attempt] = dataclasses.field(default_factory=list)
    objection: Objection | None = None

    @property
    def opset(self) -> int:
        """The opset to write."""
        target = self.options.target
        return writers.opset_for(None if target is None else target.max_opset)


@frozen
class Draft:
    """A file that an exporter has written and we have finished, not yet handed out."""

    exporter: str
    proto: onnx.ModelProto
    path: Path
    proof: Proof


def interface_of(job: Job) -> tuple[finish.Dims, finish.Dims]:
    """Returns the dimensions of inputs and outputs as the file declares them."""
    subject, axes = job.subject, job.axes
    inputs = {
        each.name: tuple(
            name if name is not None else size
            for name, size in zip(axes.names(i, len(each.shape)), each.shape, strict=True)
        )
        for i, each in enumerate(subject.inputs)
    }
    if not axes.places:
        return inputs, {n: tuple(t.shape) for n, t in zip(subject.outputs, subject.expected, strict=True)}
    found = output_dims(job.trials, job.rules, subject.outputs)
    return inputs, dict(zip(subject.outputs, found, strict=True))
