"""What is asked (`Target`, `BuildPlan`) and what happened (`BuildReport`), and their JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.builder_options import DEFAULTS, BuilderOptions
from trtconv.core.dims import InputRange, InputSpec, Range, ShapeProfile
from trtconv.core.findings import Finding, Ignored, Severity
from trtconv.core.frozen import frozen
from trtconv.core.requests.common import SCHEMA, Bounds, TensorInfo, as_paths
from trtconv.core.requests.rewrite import Edit, Skip
from trtconv.core.selection import Selection
from trtconv.core.target import Target
from trtconv.core.version import __version__


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
