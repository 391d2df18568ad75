"""What is asked (`Target`, `BuildPlan`) and what happened (`BuildReport`), and their JSON."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv._version import __version__
from trtconv.errors import InputError
from trtconv.findings import Finding, Ignored, Severity, summarize
from trtconv.frozen import frozen
from trtconv.selection import Selection
from trtconv.shapes import InputRange, InputSpec, Range, ShapeProfile
from trtconv.tuning import DEFAULTS, BuilderOptions

SCHEMA = 1
"""Version of every JSON document that trtconv writes; raised when a key changes its meaning."""

FAMILIES = ("rtx", "tensorrt")
PRECISIONS = ("as-is", "fp16", "bf16", "int8")


_MAJORS = {"tensorrt": range(8, 12), "rtx": range(1, 2)}
"""Versions whose rules are known. Which parser reads what differs from one to the next, so none is guessed."""


@frozen
class Target:
    """What an engine or a verdict is meant for. Rules and passes ask this, never TensorRT itself.

    Args:
        family: "rtx" (TensorRT-RTX) or "tensorrt".
        version: (major, minor) where known or asked for, else None.
    """

    family: str
    version: tuple[int, ...] | None = None

    def __str__(self) -> str:
        if self.version is None:
            return self.family
        return f"{self.family}-{'.'.join(str(part) for part in self.version)}"

    def before(self, *version: int) -> bool:
        """True for the full TensorRT in a version older than the given one."""
        return self.family == "tensorrt" and self.version is not None and self.version < version

    @property
    def max_opset(self) -> int:
        """Newest ONNX opset that the parser documents. Source: release notes of the ONNX parser."""
        if self.before(9):
            return 17
        if self.before(10, 5):
            return 20
        return 25 if self.family == "rtx" or not self.before(11) else 24

    @property
    def strided_dilated_deconv(self) -> bool:
        """Whether a deconvolution may have stride > 1 and dilation > 1. Source: builds on RTX 1.7, runs on 8.6."""
        return self.family == "tensorrt"

    @classmethod
    def parse(cls, text: str) -> Target | None:
        """Reads a `--target`: "auto" (None), "rtx", "tensorrt", "tensorrt-8.6", "rtx-1.7"."""
        if text == "auto":
            return None
        match = re.fullmatch(r"(rtx|tensorrt)(?:-(\d+(?:\.\d+)*))?", text)
        if match is None:
            raise InputError(f"--target {text!r} is unknown", "Use auto, rtx, tensorrt or a version: tensorrt-8.6.")
        version = tuple(int(part) for part in match[2].split(".")) if match[2] else None
        return cls(match[1], version)

    @classmethod
    def asked(cls, text: str) -> Target | None:
        """Reads what a user wrote for `--target`, as `parse` does.

        Raises:
            InputError: The version is one whose rules are not known.
        """
        target = cls.parse(text)
        if target is not None and target.version is not None and target.version[0] not in _MAJORS[target.family]:
            known = ", ".join(f"{family}-{major}" for family, majors in _MAJORS.items() for major in majors)
            raise InputError(f"--target {text!r}: that version's rules are not known", f"Known are {known}.")
        return target


@frozen
class BuildPlan:
    """Everything that decides what the engine is.

    Args:
        target: Runtime that is asked for.
        profiles: One optimization profile or more; the order is the engine's.
        precision: One of `PRECISIONS`.
        rewrite: Whether the passes run.
        requantize: Whether asymmetric tensors are requantised symmetrically, which changes numbers.
        rounded: Whether sizes that the network does not accept are moved.
        split: Into how many profiles the one is divided: a number, "auto" or None.
        asked: The profiles before rounding and splitting; None where nothing of the kind was asked for.
        options: How the builder is to work.
        cast_interface: Whether inputs and outputs are cast to the precision too.
        cast_by: Versions of what a cast depends on; empty where the graph is not cast.
        timing_cache: File of the timing cache, which does not decide what the engine is; None for none.
    """

    target: Target
    profiles: tuple[ShapeProfile, ...]
    precision: str = "as-is"
    rewrite: bool = True
    requantize: bool = False
    rounded: bool = False
    split: str | None = None
    asked: tuple[ShapeProfile, ...] | None = None
    options: BuilderOptions = DEFAULTS
    cast_interface: bool = False
    cast_by: Mapping[str, str] = dataclasses.field(default_factory=dict)
    timing_cache: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the plan as plain JSON values."""
        asked = self.profiles if self.asked is None else self.asked
        return {
            "target": str(self.target),
            "precision": self.precision,
            "rewrite": self.rewrite,
            "requantize": self.requantize,
            "round": self.rounded,
            "split": self.split,
            "options": self.options.to_json(),
            "cast_io": self.cast_interface,
            "cast_by": dict(self.cast_by),
            "dims": [{name: str(r) for name, r in p.dims.items()} for p in asked],
            "values": [{name: bounds.to_json() for name, bounds in p.values.items()} for p in asked],
        }


@frozen
class Edit:
    """One change that a pass made.

    Args:
        pass_name: The pass.
        node: Name of the node that was rewritten.
        what: What was done, in words.
    """

    pass_name: str
    node: str
    what: str

    def to_json(self) -> dict[str, str]:
        """Returns the edit as plain JSON values."""
        return {"pass": self.pass_name, "node": self.node, "what": self.what}


@frozen
class Skip:
    """A node that a pass looked at and left alone, and why."""

    pass_name: str
    node: str
    reason: str

    def to_json(self) -> dict[str, str]:
        """Returns the skip as plain JSON values."""
        return {"pass": self.pass_name, "node": self.node, "reason": self.reason}


@frozen
class TensorInfo:
    """An input or output of an engine. `shape` has -1 where the size is dynamic."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the tensor as plain JSON values."""
        return {"name": self.name, "kind": self.kind, "dtype": self.dtype, "shape": list(self.shape)}


@frozen
class BuildReport:
    """What a build did. `to_json` is the document beside the engine; its keys are documented in docs/reports.md.

    Args:
        model: Path and SHA-256 (of the file and its external data) of the model.
        plan: What was asked.
        edits: Changes that the passes made.
        skipped: What the passes left alone, and why.
        findings: Verdicts about the model.
        runtime: Family, version and GPU name (None without one) of the runtime that built.
        engine: Path, SHA-256 and size in bytes; None where no engine was made.
        io: Inputs and outputs of the engine.
        seconds: Wall time by stage, in seconds.
        up_to_date: True where an engine made earlier was kept.
        exit_code: As the command line would end.
        lattice: The sizes that the network accepts, as `trtconv sizes` tells them; None where there is none to tell.
        notes: What was done to the profiles, in words.
        inputs: The model's inputs with the names of their dimensions.
        cast: How the graph was cast to the precision, and how far it is from the model; None where it was not.
        ignored: Findings that were asked to be left out.
    """

    model: dict[str, Any]
    plan: BuildPlan
    runtime: dict[str, Any]
    edits: tuple[Edit, ...] = ()
    skipped: tuple[Skip, ...] = ()
    findings: tuple[Finding, ...] = ()
    engine: dict[str, Any] | None = None
    io: tuple[TensorInfo, ...] = ()
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    up_to_date: bool = False
    exit_code: int = 0
    lattice: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    cast: dict[str, Any] | None = None
    ignored: tuple[Ignored, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain JSON values."""
        return {
            "schema": SCHEMA,
            "trtconv": __version__,
            "model": self.model,
            "plan": self.plan.to_json(),
            "profiles": [profile.to_json() for profile in self.plan.profiles],
            "dims": [{name: str(r) for name, r in p.dims.items()} for p in self.plan.profiles],
            "lattice": self.lattice,
            "notes": list(self.notes),
            "cast": self.cast,
            "edits": [edit.to_json() for edit in self.edits],
            "skipped": [skip.to_json() for skip in self.skipped],
            "findings": [finding.to_json() for finding in self.findings],
            "ignored": [each.to_json() for each in self.ignored],
            "runtime": self.runtime,
            "engine": self.engine,
            "seconds": {stage: round(value, 4) for stage, value in self.seconds.items()},
            "io": [tensor.to_json() for tensor in self.io],
            "inputs": [{"name": s.name, "dtype": s.dtype, "dims": list(s.dims)} for s in self.inputs],
            "up_to_date": self.up_to_date,
            "exit_code": self.exit_code,
        }

    def kept(self, old: Mapping[str, Any]) -> BuildReport:
        """Returns this report with the results of an earlier one, whose engine is kept.

        Args:
            old: The JSON of a report of the same model, plan and runtime.

        Raises:
            KeyError, TypeError: `old` is no such report.
        """
        return dataclasses.replace(
            self,
            edits=tuple(Edit(e["pass"], e["node"], e["what"]) for e in old["edits"]),
            skipped=tuple(Skip(s["pass"], s["node"], s["reason"]) for s in old["skipped"]),
            findings=tuple(Finding.from_json(f) for f in old["findings"]),
            io=tuple(TensorInfo(t["name"], t["kind"], t["dtype"], tuple(t["shape"])) for t in old["io"]),
            engine=dict(old["engine"]),
            plan=dataclasses.replace(self.plan, profiles=profiles_from_json(old)),
            lattice=old["lattice"],
            notes=tuple(old["notes"]),
            cast=old["cast"],
            ignored=tuple(Ignored.from_json(each) for each in old["ignored"]),
            up_to_date=True,
        )


def profiles_from_json(report: Mapping[str, Any]) -> tuple[ShapeProfile, ...]:
    """Reads the profiles of a build report's JSON.

    Raises:
        KeyError, TypeError, ValueError, InputError: It has none.
    """
    profiles = []
    for inputs, dims in zip(report["profiles"], report["dims"], strict=True):
        shapes = {name: InputRange.from_json(entry) for name, entry in inputs.items()}
        values = {name: InputRange.from_json(e["values"]) for name, e in inputs.items() if "values" in e}
        profiles.append(ShapeProfile(shapes, {name: Range.parse(text) for name, text in dims.items()}, values))
    return tuple(profiles)


Bounds = Mapping[str, Range]
"""Dimension name or INPUT:AXIS to its range."""


def as_paths(request: object, *names: str) -> None:
    """Lets callers of the Python API write paths as text."""
    for name in names:
        value = getattr(request, name)
        if isinstance(value, str):
            object.__setattr__(request, name, Path(value))


@frozen
class BuildRequest:
    """A call of `trtconv build`.

    Args:
        model: The .onnx file; never written.
        engine: Where the engine goes; default: the model's path with the suffix .engine.
        dims: Bounds that hold in every profile.
        profiles: One entry an optimization profile, each laid over `dims`; empty means one profile from `dims`.
        target: None picks the installed runtime.
        precision: One of `PRECISIONS`.
        rewrite: Whether the passes run.
        requantize: Whether asymmetric tensors are requantised symmetrically in int8, which changes numbers.
        fail_on: Lowest severity of a finding that fails the build; None: never.
        selection: Which findings count.
        force: Build even where the engine is up to date.
        report: Where the report goes; default: the engine's path with ".json" appended.
        rounded: Move sizes that the network does not accept to the nearest that it does.
        split: Divide the one profile into this many, or "auto"; None: do not.
        values: Bounds of the elements of inputs that hold shapes or counts.
        options: How the builder is to work.
        timing_cache: File of TensorRT's timing cache.
        cast_interface: Whether inputs and outputs are cast to the precision too.
        timing_folder: Folder for one such file a version and GPU, where no file is given. None of both: no cache.
    """

    model: Path
    engine: Path | None = None
    dims: Bounds = dataclasses.field(default_factory=dict)
    profiles: tuple[Bounds, ...] = ()
    target: Target | None = None
    precision: str = "as-is"
    rewrite: bool = True
    requantize: bool = False
    fail_on: Severity | None = Severity.ERROR
    selection: Selection = dataclasses.field(default_factory=Selection)
    force: bool = False
    report: Path | None = None
    rounded: bool = False
    split: str | None = None
    values: Mapping[str, InputRange] = dataclasses.field(default_factory=dict)
    options: BuilderOptions = DEFAULTS
    timing_cache: Path | None = None
    timing_folder: Path | None = None
    cast_interface: bool = False

    def __post_init__(self) -> None:
        as_paths(self, "model", "engine", "report", "timing_cache", "timing_folder")

    @property
    def engine_path(self) -> Path:
        """Where the engine goes."""
        return self.engine or self.model.with_suffix(".engine")

    @property
    def report_path(self) -> Path:
        """Where the report goes."""
        return self.report or self.engine_path.with_name(self.engine_path.name + ".json")


@frozen
class CheckRequest:
    """A call of `trtconv check`; fields as in `BuildRequest`. Bounds may be left out: sizes are then not checked.

    Args:
        thorough: Whether an engine is built, and thrown away, whatever it costs; a small one is in any case where that
            needs no GPU.
    """

    model: Path
    dims: Bounds = dataclasses.field(default_factory=dict)
    profiles: tuple[Bounds, ...] = ()
    target: Target | None = None
    rewrite: bool = True
    requantize: bool = False
    fail_on: Severity | None = Severity.ERROR
    selection: Selection = dataclasses.field(default_factory=Selection)
    thorough: bool = False
    values: Mapping[str, InputRange] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        as_paths(self, "model")


@frozen
class CheckReport:
    """What `trtconv check` found.

    Args:
        model: Path and SHA-256.
        target: What was checked against.
        findings: Worst first, then by place.
        parser: {"runtime", "version", "accepted", "built", "why"}; accepted is None where the target's parser is not
            installed, which why then says; built is None where no engine was tried.
        exit_code: 0, or 1 where a finding is at or above `fail_on`.
        ignored: Findings that were asked to be left out.
        fail_on: As in the request.
        unbounded: Dynamic dimensions that were given no bounds, so that no size was checked.
    """

    model: dict[str, Any]
    target: Target
    findings: tuple[Finding, ...]
    parser: dict[str, Any]
    exit_code: int
    ignored: tuple[Ignored, ...] = ()
    fail_on: Severity | None = Severity.ERROR
    unbounded: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain JSON values."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "target": str(self.target),
            "unbounded": list(self.unbounded),
            "findings": [finding.to_json() for finding in self.findings],
            "ignored": [each.to_json() for each in self.ignored],
            "summary": summarize(self.findings),
            "parser": self.parser,
            "fail_on": "never" if self.fail_on is None else self.fail_on.value,
            "exit_code": self.exit_code,
        }


@frozen
class FailedRun:
    """One of several checks or builds that ended with an exception; fields as in the boundary's error document."""

    model: str
    target: str
    kind: str
    message: str
    hint: str
    exit_code: int

    def to_json(self) -> dict[str, Any]:
        """Returns the failure as plain JSON values."""
        error = {"type": self.kind, "message": self.message, "hint": self.hint}
        return {
            "schema": SCHEMA,
            "model": {"path": self.model},
            "target": self.target,
            "error": error,
            "exit_code": self.exit_code,
        }


@frozen
class RewriteRequest:
    """A call of `trtconv rewrite`.

    Args:
        model: The .onnx file; never written.
        output: Where the rewritten model goes.
        only: Names of the only passes to run; empty means all.
        skip: Names of passes to leave out.
        target: None picks the installed runtime.
        requantize: Whether asymmetric tensors are requantised symmetrically in int8, which changes numbers.
    """

    model: Path
    output: Path
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    target: Target | None = None
    requantize: bool = False

    def __post_init__(self) -> None:
        as_paths(self, "model", "output")


@frozen
class RewriteReport:
    """What `trtconv rewrite` did.

    Args:
        model: Path and SHA-256 of the original.
        output: Path, SHA-256 and bytes of the file written.
        verified: {"max_relative_error": largest error against the original on ONNX Runtime or None, "why": reason
            for None, "inputs": shapes that were run}, and where sizes were freed "alone": shapes at which only the
            rewritten model was run.
    """

    model: dict[str, Any]
    output: dict[str, Any]
    edits: tuple[Edit, ...]
    skipped: tuple[Skip, ...]
    verified: dict[str, Any]
    exit_code: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain JSON values."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "output": self.output,
            "edits": [edit.to_json() for edit in self.edits],
            "skipped": [skip.to_json() for skip in self.skipped],
            "verified": self.verified["max_relative_error"],
            "verification": self.verified,
            "exit_code": self.exit_code,
        }


@frozen
class ReduceRequest:
    """A call of `trtconv reduce`; fields as in `BuildRequest` where not told.

    Args:
        model: The failing .onnx file; never written.
        output: Where the part goes.
        trials: How many parts are tried at most.
        timeout: Seconds after which one of them counts as hanging.
    """

    model: Path
    output: Path
    dims: Bounds = dataclasses.field(default_factory=dict)
    profiles: tuple[Bounds, ...] = ()
    target: Target | None = None
    precision: str = "as-is"
    rewrite: bool = True
    requantize: bool = False
    values: Mapping[str, InputRange] = dataclasses.field(default_factory=dict)
    trials: int = 1000
    timeout: float = 120.0

    def __post_init__(self) -> None:
        as_paths(self, "model", "output")


@frozen
class Failure:
    """One way in which a model fails on a target.

    Args:
        code: Rule code of the finding, "crash", "timeout", "verify" (the rewritten model computes something else), or
            the name of another exception.
        name: Name of the rule or kind.
        message: What was said.
        op: Operator of the node that it is about, possibly empty.
        node: Name of that node, possibly empty.
    """

    code: str
    name: str
    message: str
    op: str = ""
    node: str = ""


@frozen
class ReduceReport:
    """What `trtconv reduce` found.

    Args:
        model: Path and SHA-256 of the whole.
        output: Path, SHA-256 and bytes of the part.
        failure: How both fail.
        nodes_before: Nodes of the whole.
        nodes: Nodes of the part.
        trials: Number of parts that were tried.
        minimal: Whether the part without any one of its nodes no longer fails so.
        command: What shows the failure of the part.
    """

    model: dict[str, Any]
    output: dict[str, Any]
    failure: Failure
    nodes_before: int
    nodes: int
    trials: int
    minimal: bool
    command: str
    exit_code: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain JSON values."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "output": self.output,
            "failure": dataclasses.asdict(self.failure),
            "nodes": {"before": self.nodes_before, "after": self.nodes},
            "trials": self.trials,
            "minimal": self.minimal,
            "command": self.command,
            "exit_code": self.exit_code,
        }
