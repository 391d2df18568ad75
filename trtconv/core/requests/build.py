"""What is asked (`BuildRequest`), what is decided (`BuildPlan`) and what happened (`BuildReport`), and their JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.builder_options import BuilderOptions
from trtconv.core.dims import InputRange, InputSpec, Range, ShapeProfile
from trtconv.core.encode import Document, decoded, plain
from trtconv.core.errors import InputError
from trtconv.core.files import report_beside, source_checksum, with_ending
from trtconv.core.findings import Finding, Ignored, Severity
from trtconv.core.frozen import frozen
from trtconv.core.options import Option, group, option, reported
from trtconv.core.requests.common import (
    DIMS,
    FAIL_ON,
    NODE_PRECISIONS,
    PRECISION,
    PROFILES,
    PROVE,
    REQUANTIZE,
    REWRITE,
    SELECTION,
    TARGET,
    VALUES,
    Bounds,
    Paths,
    TensorInfo,
)
from trtconv.core.requests.forms import CHECKSUM, checksum
from trtconv.core.requests.rewrite import Edit, Skip
from trtconv.core.requests.tuned import Tuned
from trtconv.core.selection import Selection
from trtconv.core.target import Target

_MOST_PROFILES = 9999


def _split(text: str | int) -> str:
    """Reads `--split`.

    Raises:
        InputError: It is neither a number above 0 nor auto.
    """
    text = str(text)
    if text == "auto" or (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= _MOST_PROFILES):
        return text
    raise InputError(
        f"--split {text!r} is neither a number of profiles (1 to {_MOST_PROFILES}) nor auto",
        "Write --split 3 or --split auto.",
    )


def _node_precisions(texts: Sequence[str]) -> Mapping[str, str]:
    """Reads `--node-precision`.

    Raises:
        InputError: One is not NODE=TYPE.
    """
    found = {}
    for text in texts:
        name, _, kind = text.rpartition("=")
        if not name or kind not in NODE_PRECISIONS:
            raise InputError(
                f"--node-precision {text!r} is not NODE=TYPE", f"TYPE is one of {', '.join(NODE_PRECISIONS)}."
            )
        found[name] = kind
    return found


@frozen
class BuildSettings:
    """What of a request decides what the engine is."""

    _: dataclasses.KW_ONLY
    precision: str = PRECISION
    node_precisions: Mapping[str, str] = option(
        "--node-precision",
        "Compute a node in another type than --precision says: fp32, fp16 or bf16. Repeatable.",
        metavar="NODE=TYPE",
        many=True,
        default={},
        read=_node_precisions,
        write=lambda types: [f"{name}={kind}" for name, kind in types.items()],
        key="node-precisions",
        schema={"type": "object", "additionalProperties": {"type": "string", "enum": list(NODE_PRECISIONS)}},
        load=dict,
        about="Node to the type that it is computed in, whatever precision says: fp32, fp16 or bf16.",
    )
    tolerance: float = Option(
        1e-3,
        settings={
            "tolerance": {
                "type": "number",
                "minimum": 0,
                "description": "Error (rms) that precision auto may make of an output, over its values; usually 0.001.",
            }
        },
    )  # type: ignore[assignment]
    data: str | None = Option(
        None,
        settings={
            "data": {
                "type": "string",
                "description": "Folder or .npz file of samples that precision auto measures on; default: random ones.",
            }
        },
    )  # type: ignore[assignment]
    preprocess: str | None = Option(
        None,
        settings={"preprocess": {"type": "string", "description": "What becomes of images in data, as --preprocess."}},
    )  # type: ignore[assignment]
    rewrite: bool = REWRITE
    requantize: bool = REQUANTIZE
    rounded: bool = option(
        "--round",
        "Move min, opt and max to sizes that the network accepts: min down, max up, opt to the nearest.",
        default=False,
        key="round",
        about="Move sizes that the network does not accept; default: false.",
    )
    split: str | None = option(
        "--split",
        "Divide the ranges into N optimization profiles, equal factors apart, at sizes that the network accepts; "
        "auto makes one for the opt and each of its halves and doubles. The batch is divided only where nothing else "
        "ranges.",
        metavar="N|auto",
        default=None,
        read=_split,
        key="split",
        about="Divide the ranges into that many profiles, or auto.",
        schema={"type": ["string", "integer"], "pattern": r"^(auto|[1-9]\d*)$"},
        load=_split,
    )
    options: BuilderOptions = group(
        BuilderOptions, "options", "How TensorRT's builder works, as the flags of build of the same names."
    )
    tune: bool = option(
        "--tune",
        "Time the forms that the rewrite of a transposed convolution can take on the GPU here, and take the fastest; "
        "what was measured is kept beside the timing cache.",
        default=False,
        key="tune",
        about="Time the forms of transposed convolutions on the GPU, and take the fastest; default: false.",
    )
    cast_interface: bool = option(
        "--cast-io",
        "Give inputs and outputs the precision too; they keep theirs otherwise.",
        default=False,
        key="cast-io",
        about="Cast inputs and outputs to the precision too; default: false.",
    )


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
        document = Document.to_json(self)
        return {**document, CHECKSUM: checksum(document)}

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


@frozen
class BuildRequest(BuildSettings, Paths):
    """A call of `trtconv build`.

    Args:
        model: The .onnx file; never written.
        engine: Where the engine goes; default: the model's path with the suffix .engine.
        report: Where the report goes; default: the engine's path with ".json" appended.
        timing_cache: File of TensorRT's timing cache.
        timing_folder: Folder for one such file a version and GPU, where no file is given. None of both: no cache.
    """

    model: Path
    engine: Path | None = option(
        "-o --output",
        "Where the engine goes. Default: MODEL with the suffix .engine.",
        metavar="ENGINE",
        default=None,
    )
    dims: Bounds = DIMS
    profiles: tuple[Bounds, ...] = PROFILES
    values: Mapping[str, InputRange] = VALUES
    target: Target | None = TARGET
    fail_on: Severity | None = FAIL_ON
    selection: Selection = SELECTION._replace(flags=())
    report: Path | None = option(
        "--report", "Where the report goes. Default: ENGINE.json.", metavar="FILE", default=None
    )
    sign: Path | None = option(
        "--sign",
        "Sign engine and report with this private Ed25519 key (PEM). What is there and is not signed by it is built "
        "again.",
        metavar="KEY",
        default=None,
    )
    prove: str = PROVE
    force: bool = option("--force", "Build even where model, plan and runtime have not changed.", default=False)
    timing_cache: Path | None = option(
        "--timing-cache",
        "Where TensorRT keeps what it measured, which later builds need not measure again. auto: the user's cache "
        "folder, a file for each version and GPU. TensorRT-RTX measures nothing and has none.",
        metavar="FILE|auto|none",
        default=None,
        absent="auto",
        read=lambda text: None if text == "none" else text,
    )
    timing_folder: Path | None = None

    @property
    def engine_path(self) -> Path:
        """Where the engine goes."""
        return self.engine or with_ending(self.model, ".engine")

    @property
    def report_path(self) -> Path:
        """Where the report goes."""
        return self.report or report_beside(self.engine_path)
