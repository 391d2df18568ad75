"""One export on its way, and a file that came of one try."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path

import onnx

from trtconv.core.documents.export import Attempt, Branch, Proof, SizeRule
from trtconv.core.frozen import frozen
from trtconv.core.stopwatch import Stopwatch
from trtconv.exporter.file import finish, writers
from trtconv.exporter.file.validate import Objection, Validated
from trtconv.exporter.module.torch_module import Subject
from trtconv.exporter.request import Axes, ExportOptions
from trtconv.exporter.sizing.guards import Guards
from trtconv.exporter.sizing.region import Region
from trtconv.exporter.sizing.regions import Regions
from trtconv.exporter.sizing.sizes import output_dims
from trtconv.exporter.sizing.trials import Trials

_PART, _LEAST = 0.5, 3.0
"""Of the processor time that the first right file took, what a search for something better may take; in s at least."""


@dataclasses.dataclass
class Job:
    """One export on its way.

    Args:
        subject: What is exported.
        axes: Its dynamic dimensions.
        trials: Its behaviour at other sizes.
        rules: The sizes that PyTorch takes, as the trials showed; then those that the file takes.
        options: What was asked.
        clock: Times the stages.
        folder: Where files may lie while they are made.
        joint: What ties dimensions together, in words.
        translations: Operators of torch to functions of the user's that write them.
        attempts: The ways that were tried.
        objection: What torch.export said last, where it refused.
        together: Sizes that no file could take together, where there are some.
        guards: What torch.export relied on, where it did not.
        branches: Those on values of which a trace keeps one side: accepted by the user, or checks that only raise.
        branches_on_sizes: Place of each branch on sizes of which the user accepted one side, to that branch.
        traced: The sizes at which Python takes the way that torch.export traced, where that is known.
        regions: Of the sizes of the last draft that was held to them.
        blind: Whether the tracer made constants of sizes, and nobody can say what they mean.
        unguarded: Whether torch.export was asked for its guards alone, and had none to tell.
        cost: Processor time that the first right file took.
        room: Processor time that ways to a better file may still take, once there is a right one.
        started: When it began, by the monotonic clock.
    """

    subject: Subject
    axes: Axes
    trials: Trials
    rules: tuple[SizeRule, ...]
    options: ExportOptions
    clock: Stopwatch
    folder: Path
    joint: tuple[str, ...] = ()
    translations: writers.Translations = dataclasses.field(default_factory=dict)
    attempts: list[Attempt] = dataclasses.field(default_factory=list)
    objection: Objection | None = None
    together: Objection | None = None
    guards: Guards | None = None
    branches: tuple[Branch, ...] = ()
    branches_on_sizes: dict[str, Branch] = dataclasses.field(default_factory=dict)
    traced: Region | None = None
    regions: Regions | None = None
    blind: bool = False
    unguarded: bool = False
    cost: float = math.inf
    room: float = math.inf
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float:
        """How much of `--time-limit` is left, below 0 where it is over."""
        return self.options.time_limit - (time.monotonic() - self.started)

    def accepts(self, branch: Branch) -> bool:
        """Whether the user accepted that the file has one side of a branch only."""
        return any(branch.is_at(place) for place in self.options.accepted)

    def learn(self, outcome: Validated, sizes: Mapping[str, int]) -> None:
        """Keeps what torch.export told, which traced at some sizes."""
        self.guards = outcome.guards
        example = self.axes.example
        if outcome.region is not None and outcome.region.takes(example):
            # What torch itself does otherwise at the example's size (squeeze) may lead to other questions.
            same = self.trials.path_or(sizes, 0) == self.trials.path_or(example, 1)
            self.traced = outcome.region if same else self.traced

    @property
    def share(self) -> float:
        """Processor time in s of the ways to a better file, and of the search for regions, after a right one."""
        return max(_PART * self.cost, _LEAST)

    @property
    def opset(self) -> int:
        """The opset to write."""
        target = self.options.target
        return writers.opset_for(None if target is None else target.max_opset)


@frozen
class Draft:
    """A file that an exporter has written and we have finished, not yet handed out.

    Args:
        exporter: Who wrote it.
        proto: What was written; its weights may lie beside `path`.
        path: Where.
        proof: The comparison with PyTorch.
        rules: The sizes that it takes.
        notes: What the user should know of it.
    """

    exporter: str
    proto: onnx.ModelProto
    path: Path
    proof: Proof
    rules: tuple[SizeRule, ...]
    notes: tuple[str, ...] = ()


def interface_of(job: Job, rules: tuple[SizeRule, ...]) -> tuple[finish.Dims, finish.Dims]:
    """Returns the dimensions of inputs and outputs as a file declares them that takes the sizes of `rules`."""
    subject, axes = job.subject, job.axes
    inputs = {
        decl.name: tuple(
            name if name is not None else size
            for name, size in zip(axes.names(i, len(decl.shape)), decl.shape, strict=True)
        )
        for i, decl in enumerate(subject.inputs)
    }
    if not axes.places:
        return inputs, {n: tuple(t.shape) for n, t in zip(subject.outputs, subject.expected, strict=True)}
    dims = output_dims(job.trials, rules, subject.outputs)
    return inputs, dict(zip(subject.outputs, dims, strict=True))
