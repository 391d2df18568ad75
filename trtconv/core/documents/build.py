"""What is decided (`BuildPlan`) and what happened (`BuildReport`), and their JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.dims import InputRange, InputSpec, Range, ShapeProfile
from trtconv.core.documents.forms import CHECKSUM, checksum
from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.documents.tuned import Tuned
from trtconv.core.encode import Document, decoded, plain, strict
from trtconv.core.files import source_checksum
from trtconv.core.findings import Finding, Ignored
from trtconv.core.frozen import frozen
from trtconv.core.options import reported
from trtconv.core.requests.build import BuildSettings
from trtconv.core.requests.common import (
    Bounds,
)
from trtconv.core.target import Target


@frozen
class BuildPlan(BuildSettings):
    """Everything that decides what the engine is.

    Args:
        target: Runtime that is asked for.
        profiles: One optimization profile or more; the order is the engine's.
        asked: The profiles before rounding and splitting; None where nothing of the kind was asked for.
        cast_by: Versions of what a cast depends on; empty where the graph is not cast.
        timing_cache: File of the timing cache, which does not decide what the engine is; None for none.
        sampled: SHA-256 of the samples that the types are chosen on; empty where they are not, or are random.
    """

    target: Target
    profiles: tuple[ShapeProfile, ...]
    asked: tuple[ShapeProfile, ...] | None = None
    cast_by: Mapping[str, str] = dataclasses.field(default_factory=dict)
    timing_cache: Path | None = None
    sampled: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the plan as plain JSON values."""
        asked = self.profiles if self.asked is None else self.asked
        return {
            "target": str(self.target),
            **reported(self, BuildSettings),
            "cast_by": dict(self.cast_by),
            "sampled": self.sampled,
            "dims": plain([profile.dims for profile in asked]),
            "values": plain([profile.values for profile in asked]),
        }


@frozen
class BuildReport(
    Document,
    keys="schema trtconv source model plan profiles dims lattice notes tuned mix cast edits skipped findings ignored "
    "proof runtime worker engine seconds io inputs up_to_date signed_by signature exit_code",
):
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
        mix: The types that `--precision auto` found, and what they cost; None where it was not asked.
        tuned: What `--tune` chose.
        cast: How the graph was cast to the precision, and how far it is from the model; None where it was not.
        ignored: Findings that were asked to be left out.
        proof: What was proven of the parsed network; None where nothing was to be.
        worker: Name of the machine of a farm that built it; None for this one.
        signed_by: Fingerprint of the key that signed; None where none was asked to.
        signature: Of all the others; None where none was asked for.
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
    tuned: tuple[Tuned, ...] = ()
    cast: dict[str, Any] | None = None
    mix: dict[str, Any] | None = None
    ignored: tuple[Ignored, ...] = ()
    proof: dict[str, Any] | None = None
    worker: str | None = None
    signed_by: str | None = None
    signature: str | None = None

    @property
    def profiles(self) -> tuple[ShapeProfile, ...]:
        """The engine's optimization profiles."""
        return self.plan.profiles

    @property
    def dims(self) -> list[Bounds]:
        """The named dimensions of each profile."""
        return [profile.dims for profile in self.profiles]

    @property
    def source(self) -> str:
        """The code that made it."""
        return source_checksum()

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain JSON values, with the checksum of all of them."""
        document = strict(Document.to_json(self))
        return {**document, CHECKSUM: checksum(document)}

    def of_build(self, seconds: Mapping[str, float], exit_code: int) -> BuildReport:
        """Returns the report of an engine that was kept as that of the build that made it."""
        return dataclasses.replace(self, seconds=dict(seconds), exit_code=exit_code, up_to_date=False)

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
            findings=tuple(decoded(Finding, f) for f in old["findings"]),
            io=tuple(decoded(TensorInfo, t) for t in old["io"]),
            engine=old["engine"] and dict(old["engine"]),
            plan=dataclasses.replace(self.plan, profiles=profiles_from_json(old)),
            lattice=old["lattice"],
            notes=tuple(old["notes"]),
            tuned=tuple(decoded(Tuned, each) for each in old["tuned"]),
            cast=old["cast"],
            mix=old.get("mix"),
            ignored=tuple(Ignored(decoded(Finding, each), each["reason"]) for each in old["ignored"]),
            proof=old["proof"],
            worker=old.get("worker"),
            up_to_date=True,
        )


def profiles_from_json(report: Mapping[str, Any]) -> tuple[ShapeProfile, ...]:
    """Reads the profiles of a build report's JSON.

    Raises:
        KeyError, TypeError, ValueError, InputError: It has none.
    """
    profiles = []
    for inputs, dims in zip(report["profiles"], report["dims"], strict=True):
        shapes = {name: decoded(InputRange, entry) for name, entry in inputs.items()}
        values = {name: decoded(InputRange, e["values"]) for name, e in inputs.items() if "values" in e}
        profiles.append(ShapeProfile(shapes, {name: Range.parse(text) for name, text in dims.items()}, values))
    return tuple(profiles)
