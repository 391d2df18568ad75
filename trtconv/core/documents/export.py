"""What an export did. Knows nothing of torch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from trtconv.core.decode import Measured
from trtconv.core.dims import Range, Shape
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import CheckReport
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen

_COMPLAINTS = ("raise", "assert", "_assert", "torch._assert", "torch._check")


@frozen
class Blame:
    """The line of Python that a failure comes from.

    Args:
        file: The file, relative to where it can be found (working folder or site-packages), else its name alone.
        line: The line's number.
        code: The line.
        why: The failure's own message, first line.
    """

    file: str
    line: int
    code: str
    why: str = ""

    def __str__(self) -> str:
        text = f"`{self.code}` at {self.file}:{self.line}" if self.code else f"{self.file}:{self.line}"
        # The first line of such a statement says nothing by itself.
        return f"{text} ({self.why})" if self.why and self.code.startswith(_COMPLAINTS) else text


@frozen
class Branch(Document, keys="at code value ran? lost? sides?=either check?"):
    """A place where Python reads what the values of the inputs, or their sizes, decide.

    Args:
        blame: The line.
        value: What it does there, in words: "reads True".
        sides: The first line of the side that ran and of the other, empty where there is none.
        known: Whether it is known which of them ran; else the first is the one that stands first.
        check: Whether the other side only raises: nothing but an error is lost.
        truth: The truth that was read, where it was one.
    """

    blame: Blame
    value: str
    sides: tuple[str, ...] = ()
    known: bool = False
    check: bool = False
    truth: bool | None = None

    @property
    def at(self) -> str:
        """The place, as `--accept-branch` takes it: "models/unet.py:31"."""
        return f"{self.blame.file}:{self.blame.line}"

    @property
    def code(self) -> str:
        """The line itself."""
        return self.blame.code

    @property
    def ran(self) -> str:
        """The first line of the side that ran, where that is known."""
        return self.sides[0] if self.known else ""

    @property
    def lost(self) -> str:
        """The first line of the side that the file does not have, where that is known."""
        return self.sides[1] if self.known else ""

    @property
    def either(self) -> tuple[str, ...]:
        """The first lines of both sides, where it is not known which of them ran."""
        return () if self.known else self.sides

    def is_at(self, place: str) -> bool:
        """Whether a place that a user gave is this one: FILE:LINE, of whose path the last parts are enough."""
        file, _, line = place.rpartition(":")
        return line == str(self.blame.line) and f"/{self.blame.file}".endswith(f"/{file.lstrip('./')}")

    def sentence(self) -> str:
        """Returns it in words: "`if x.any():` at unet.py:31 reads True; the file would never run `y = b`"."""
        text = f"{self.blame} {self.value}"
        if self.known:
            ran = f" and ran {self.ran}" if self.ran else ""
            return f"{text}{ran}; the file would {f'never run {self.lost}' if self.lost else 'always run it'}"
        if any(self.sides):
            return f"{text}; the file would always or never run {' or '.join(filter(None, self.sides))}"
        return f"{text}, which the file would always do"


UNKNOWN_LINE = Blame("a line that torch does not tell", 0, "")


@frozen
class SizeRule(Document, keys="min max step? offset offsets=remainders valid=listed tied from=blame rule=sentence"):
    """Which sizes of one dimension a module takes, as trying it at many sizes has shown.

    Args:
        name: The dimension.
        example: Its size in the example; always valid.
        step: Valid sizes are `offset` plus multiples of it; 0 where no size but the example was found to be valid.
        offset: example modulo step.
        min: Smallest size known to be valid, within the bounds that were asked for.
        max: Largest likewise; None: no bound was asked for and none met.
        valid: Every valid size that was met, where they follow no step.
        tied: Another dimension that must change with it: by as many steps.
        blame: The line that refuses the first other size.
        asked: The bounds that were asked for.
        narrowed: The line that refuses the asked bounds' end, where one does.
        remark: What else was seen.
        offsets: Further remainders modulo step that are valid too.
    """

    name: str
    example: int
    step: int = 1
    offset: int = 0
    min: int = 1
    max: int | None = None
    valid: tuple[int, ...] | None = None
    tied: str | None = None
    blame: Blame | None = None
    asked: Range | None = None
    narrowed: Blame | None = None
    remark: str = ""
    offsets: tuple[int, ...] = ()

    @property
    def baked(self) -> bool:
        """Whether no other size than the example's is valid."""
        return self.step == 0 and not self.valid

    def sentence(self) -> str:
        """Returns the rule in words: "height must be a multiple of 8: from `...` at unet.py:31"."""
        parts = [f"{self.name} {self._must()}"]
        if self.tied:
            parts.append(f"and change with {self.tied}" if not self.baked else "")
        text = " ".join(part for part in parts if part)
        return f"{text}: from {self.blame}" if self.blame else text

    def _must(self) -> str:
        if self.baked:
            return f"must be {self.example}"
        if self.valid is not None:
            return f"must be one of {', '.join(map(str, self.valid[:12]))}{' ...' if len(self.valid) > 12 else ''}"
        limits = f", at most {self.max}" if self._limited_above() else ""
        limited = self.min - self.step >= (self.asked.min if self.asked else 1)
        lowest = f", at least {self.min}" if limited else ""
        if self.step == 1:
            return f"may be any size{lowest}{limits}"
        if self.offsets:
            remainders = " or ".join(map(str, sorted((self.offset, *self.offsets))))
            return f"must leave a remainder of {remainders} when divided by {self.step}{lowest}{limits}"
        rest = f" plus {self.offset}" if self.offset else ""
        return f"must be a multiple of {self.step}{rest}{lowest}{limits}"

    def _limited_above(self) -> bool:
        if self.max is None:
            return False
        return self.asked is None or self.max + max(self.step, 1) <= self.asked.max

    def sizes(self, low: int, high: int) -> Sequence[int]:
        """Returns the valid sizes from low to high, in order, by step and offsets."""
        if not self.step:
            return range(self.example, high + 1, max(high, 1))
        ranges = [range(low + (rest - low) % self.step, high + 1, self.step) for rest in (self.offset, *self.offsets)]
        return ranges[0] if len(ranges) == 1 else sorted(itertools.chain.from_iterable(ranges))

    def takes(self, size: int) -> bool:
        """Whether a size is valid by this rule."""
        if self.baked or self.valid is not None:
            return size in (self.valid or (self.example,))
        inside = self.min <= size and (self.max is None or size <= self.max)
        return inside and size % self.step in (self.offset, *self.offsets)

    @property
    def listed(self) -> tuple[int, ...] | None:
        """Every valid size, where they follow no step."""
        return (self.example,) if self.baked and self.valid is None else self.valid

    @property
    def remainders(self) -> tuple[int, ...]:
        """Every remainder modulo step that is valid."""
        return tuple(sorted((self.offset, *self.offsets)))


@frozen
class ProofRun(Document, keys="inputs max_relative_error why?"):
    """One comparison of PyTorch with ONNX Runtime.

    Args:
        inputs: Input name to shape.
        max_relative_error: Largest difference over the largest magnitude of an output; None where it was not run.
        why: What went wrong, or the reason for None.
    """

    inputs: Mapping[str, Shape]
    max_relative_error: Measured | None
    why: str = ""

    def passes(self, tolerance: float) -> bool:
        """Whether the run is within a tolerance, or was none."""
        return self.max_relative_error is None or self.max_relative_error <= tolerance


@frozen
class Proof(Document, keys="max_relative_error=worst tolerance why? widened? runs"):
    """PyTorch against ONNX Runtime, at several sizes.

    Args:
        runs: One a size; empty where nothing was compared.
        tolerance: Largest relative error that passes.
        why: Why nothing was compared.
        widened: Whether the file was compared in float32, since ONNX Runtime has no kernels for its types.
    """

    runs: tuple[ProofRun, ...] = ()
    tolerance: float = 0.0
    why: str = ""
    widened: bool = False

    @property
    def worst(self) -> float | None:
        """Returns the largest error of all runs."""
        return max((r.max_relative_error for r in self.runs if r.max_relative_error is not None), default=None)

    @property
    def failed(self) -> bool:
        """Whether a run is out of tolerance."""
        return not all(run.passes(self.tolerance) for run in self.runs)


USED = "used"
"""Outcome of the exporter whose file is written."""


@frozen
class Attempt:
    """One exporter's try.

    Args:
        exporter: "torch.export" or "torchscript".
        outcome: "used", or why not.
    """

    exporter: str
    outcome: str

    @property
    def used(self) -> bool:
        """Whether its file is the one that was written."""
        return self.outcome == USED


@frozen
class ExportReport(
    Document,
    keys="schema trtconv spec output exporter opset ir_version inputs outputs dims=rules joint attempts branches notes "
    "proof check sides? parts? pipeline- seconds exit_code",
):
    """What an export did.

    Args:
        spec: What was exported.
        output: Path, SHA-256 and bytes of the file; None where none was written.
        exporter: The exporter whose file it is.
        opset: Its opset.
        ir_version: Its IR version.
        inputs: Input name to its dimensions, sizes or names.
        outputs: Output name likewise.
        sizes: What is known of each dynamic dimension.
        joint: Constraints that tie dimensions together, in words.
        attempts: The exporters that were tried.
        branches: Those of which the file has one side only, as the user accepted.
        notes: What else the user should know.
        proof: PyTorch against ONNX Runtime.
        check: The check of the file; None where it was not asked for or could not run.
        sides: Of `--split-branches`, the reports of the further files; all other fields are of the first, but for
            `exit_code`, which is of all.
        parts: Of several parts, the name of each to its report; all other fields are of the whole, but for `exit_code`.
        pipeline: Path of the manifest of several parts.
        seconds: Wall time by stage.
        exit_code: As the command line would end.
    """

    spec: str
    output: FileIdentity | None
    exporter: str
    opset: int
    ir_version: int
    inputs: Mapping[str, tuple[int | str, ...]]
    outputs: Mapping[str, tuple[int | str, ...]]
    sizes: tuple[SizeRule, ...] = ()
    joint: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    branches: tuple[Branch, ...] = ()
    notes: tuple[str, ...] = ()
    proof: Proof = Proof()
    check: CheckReport | None = None
    sides: tuple[ExportReport, ...] = ()
    parts: Mapping[str, ExportReport] = dataclasses.field(default_factory=dict)
    pipeline: str | None = None
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    exit_code: int = 0

    @property
    def rules(self) -> dict[str, SizeRule]:
        """Name of each dynamic dimension to what is known of it."""
        return {rule.name: rule for rule in self.sizes}


@frozen
class ConvertReport(Document, keys="schema export build sides? exit_code"):
    """What `trtconv.convert` did: the export, and the build where the export succeeded.

    Args:
        export: The export.
        build: The build of its file; None where the export failed.
        sides: Of `--split-branches`, the builds of the further files.
    """

    export: ExportReport
    build: BuildReport | None
    sides: tuple[BuildReport, ...] = ()

    @property
    def exit_code(self) -> int:
        """As the command line would end."""
        if self.build is None:
            return self.export.exit_code
        return max(report.exit_code for report in (self.build, *self.sides))
