"""What is decided (`BuildPlan`) and what happened (`BuildReport`), and their JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.codes import NETWORK_DIFFERS
from trtconv.core.decode import Fault, Measured, decoded, fields_of
from trtconv.core.dims import InputRange, InputSpec, Range, ShapeProfile
from trtconv.core.documents.best_of import BestOf
from trtconv.core.documents.images import ImageInput
from trtconv.core.documents.lattice import LatticeRecord
from trtconv.core.documents.layers import LayerTable
from trtconv.core.documents.memory import MemoryRecord
from trtconv.core.documents.mix import Mix, require_types
from trtconv.core.documents.network import NetworkRecord
from trtconv.core.documents.parts import CodeIdentity, EngineIdentity, FileIdentity, RuntimeIdentity
from trtconv.core.documents.pinned import Pinned
from trtconv.core.documents.previous import PreviousBuild
from trtconv.core.documents.proof import BuildProof
from trtconv.core.documents.refit import RefitRecord
from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.documents.signed import CHECKSUM, checksum
from trtconv.core.documents.tactics import Tactic
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.documents.tuned import Tuned, TunedNetwork
from trtconv.core.encode import Document, plain, strict
from trtconv.core.files import source_checksum
from trtconv.core.findings import Finding, Ignored
from trtconv.core.frozen import frozen
from trtconv.core.options import options, reported
from trtconv.core.requests.base import Bounds
from trtconv.core.requests.build import BuildSettings
from trtconv.core.target import FAMILIES, Target
from trtconv.core.version import __version__

_KEYS = {
    name: next(iter(option.settings)).replace("-", "_") for name, option in options(BuildSettings) if option.settings
}
"""Field of the settings to its key in a report."""


@frozen
class InputProfile(InputRange, keys="min opt max values-"):
    """The shapes of an input in one profile; `values` bounds its elements where it holds shapes or counts."""

    values: InputRange | None = None


ProfileRecord = Mapping[str, InputProfile]
"""Input name to its shapes in one profile."""


@frozen
class BuildPlan(BuildSettings):
    """Everything that decides what the engine is.

    Args:
        target: Runtime that is asked for.
        profiles: One optimization profile or more; the order is the engine's.
        asked: The profiles before rounding and splitting; None where nothing of the kind was asked for.
        cast_by: Versions of what a cast depends on; empty where the graph is not cast.
        timing_cache: File of the timing cache, which does not decide what the engine is; None for none.
        trial: Whether the engine is only run and thrown away: what its build measures is not kept.
        tactics: Which tactics layers are to get; not in the document, which has their SHA-256 (`as`).
        tactics_sha256: SHA-256 of these; empty where TensorRT chooses all.
        sampled: SHA-256 of the samples that the types are chosen on, empty where they are not, or are random; behind it
            that of the metric's code.
        plugins: Libraries of plugins that are loaded.
        references: Files that say what operators compute.
        extensions: Files of passes and rules of the user's own.
    """

    target: Target
    profiles: tuple[ShapeProfile, ...] = ()
    asked: tuple[ShapeProfile, ...] | None = None
    cast_by: Mapping[str, str] = dataclasses.field(default_factory=dict)
    timing_cache: Path | None = None
    trial: bool = False
    tactics: tuple[Tactic, ...] = ()
    tactics_sha256: str = ""
    sampled: str = ""
    plugins: tuple[CodeIdentity, ...] = ()
    references: tuple[CodeIdentity, ...] = ()
    extensions: tuple[CodeIdentity, ...] = ()

    @property
    def has_host_code(self) -> bool:
        """Whether the engine brings code that runs outside the GPU."""
        return self.options.version_compatible or any(plugin.serialized for plugin in self.plugins)

    def to_json(self) -> dict[str, object]:
        """Returns the plan as plain JSON values."""
        profiles = self.profiles if self.asked is None else self.asked
        return {
            "target": str(self.target),
            **reported(self, BuildSettings),
            "cast_by": dict(self.cast_by),
            "sampled": self.sampled,
            **({"as": self.tactics_sha256} if self.tactics_sha256 else {}),
            "plugins": plain(self.plugins),
            "references": plain(self.references),
            "extensions": plain(self.extensions),
            "dims": plain([profile.dims for profile in profiles]),
            "values": plain([profile.values for profile in profiles]),
        }

    @classmethod
    def from_json(cls, value: Any) -> BuildPlan:
        """Reads a plan; of its profiles it has the named dimensions alone, as they were asked for."""
        profiles = decoded(_AskedProfiles, value)
        own = {name: value[key] for name, key in _KEYS.items() if key in value}
        plan = cls(**fields_of(cls, {**{name: value[key] for key, name in _OTHERS.items() if key in value}, **own}))
        require_types(plan.precision, plan.node_precisions)
        values = profiles.values or ({},) * len(profiles.dims)
        if len(values) != len(profiles.dims):
            raise Fault(f"it has not as many entries as 'dims' ({len(profiles.dims)})", ["values"])
        pairs = zip(profiles.dims, values, strict=True)
        return dataclasses.replace(plan, asked=tuple(ShapeProfile({}, dims, numbers) for dims, numbers in pairs))


_OTHERS = {name: name for name in ("target", "cast_by", "sampled", "plugins", "references", "extensions")}
_OTHERS["as"] = "tactics_sha256"
"""Key of a plan to the field that it has."""


@frozen
class _AskedProfiles:
    """The named dimensions of a plan's profiles, and the bounds of elements."""

    dims: tuple[Mapping[str, Range], ...] = ()
    values: tuple[Mapping[str, InputRange], ...] = ()


@frozen
class CastCheck(Document):
    """A cast model beside the original, on ONNX Runtime.

    Args:
        max_relative_error: The largest of all outputs; None where it was not run.
        outputs: Output to its relative error, or share of integers that differ.
        why: Why it was not run; None where it was.
    """

    max_relative_error: Measured | None = None
    why: str | None = None
    outputs: Mapping[str, Measured] = dataclasses.field(default_factory=dict)


@frozen
class CastRecord(Document):
    """How a graph was cast.

    Args:
        precision: The type.
        nodes: How many are computed in it.
        kept: Why others are not, and how many.
        kept_for_values: Tensors whose values do not fit.
        verified: The cast beside the original.
    """

    precision: str = ""
    nodes: int = 0
    kept: Mapping[str, int] = dataclasses.field(default_factory=dict)
    kept_for_values: tuple[str, ...] = ()
    verified: CastCheck = CastCheck()


@frozen
class BuildReport(
    Document,
    keys="schema trtconv source model plan profiles dims lattice notes tuned tuned_network- respelled? best_of- mix "
    "pinned? cast edits skipped findings ignored proof runtime worker engine seconds io images- inputs layers- memory- "
    "network- refit- up_to_date rebuilt previous- signed_by signature exit_code",
):
    """What a build did. `to_json` is the document beside the engine; its keys are documented in docs/reports.md.

    Args:
        model: Path and SHA-256 (of the file and its external data) of the model.
        plan: What was asked.
        edits: Changes that the passes made.
        skipped: What the passes left alone, and why.
        findings: Verdicts about the model.
        runtime: The TensorRT that built.
        engine: The engine; None where none was made.
        io: Inputs and outputs of the engine.
        images: The input that takes images; None where none does.
        seconds: Wall time by stage, in seconds.
        up_to_date: True where an engine made earlier was kept.
        rebuilt: Why an engine that was there was built again; None where there was none, or by --force.
        previous: The build whose engine it took the place of; None where there was none.
        exit_code: As the command line would end.
        lattice: The sizes that the network accepts, as `trtconv sizes` tells them; None where there is none to tell.
        notes: What was done to the profiles, in words.
        inputs: The model's inputs with the names of their dimensions.
        mix: The types that `--precision auto` found, and what they cost; None where it was not asked.
        pinned: Nodes that have types of their own, by what asked for them.
        tuned: What `--tune` chose.
        tuned_network: The network in these forms beside the usual ones; None where all are the usual ones.
        respelled: Nodes that the builder refused, with the form in which it took them.
        best_of: The builds of which the fastest was taken; None where there was one.
        cast: How the graph was cast to the precision, and how far it is from the model; None where it was not.
        ignored: Findings that were asked to be left out.
        proof: What was proven of the parsed network; None where nothing was to be.
        layers: The layers that TensorRT's parser made; None where none did.
        memory: What activations take at max of each profile, by an estimate on shapes; None where nothing tells.
        network: The network of an engine that can be refitted; None for others.
        refit: Where the engine was refitted, what it was before; None where it was built so.
        worker: Name of the machine of a farm that built it; None for this one.
        signed_by: Fingerprint of the key that signed; None where none was asked to.
        signature: Of all the others; None where none was asked for.
        trtconv: Version of trtconv that built.
        source: Checksum of its code.
    """

    model: FileIdentity
    plan: BuildPlan
    runtime: RuntimeIdentity
    edits: tuple[Edit, ...] = ()
    skipped: tuple[Skip, ...] = ()
    findings: tuple[Finding, ...] = ()
    engine: EngineIdentity | None = None
    io: tuple[TensorInfo, ...] = ()
    images: ImageInput | None = None
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    up_to_date: bool = False
    rebuilt: str | None = None
    previous: PreviousBuild | None = None
    exit_code: int = 0
    lattice: LatticeRecord | None = None
    notes: tuple[str, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    tuned_network: TunedNetwork | None = None
    respelled: Mapping[str, str] = dataclasses.field(default_factory=dict)
    best_of: BestOf | None = None
    cast: CastRecord | None = None
    mix: Mix | None = None
    pinned: tuple[Pinned, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    proof: BuildProof | None = None
    layers: LayerTable | None = None
    memory: MemoryRecord | None = None
    network: NetworkRecord | None = None
    refit: RefitRecord | None = None
    worker: str | None = None
    signed_by: str | None = None
    signature: str | None = None
    trtconv: str = __version__  # type: ignore[misc]
    source: str = ""

    @property
    def profiles(self) -> tuple[ShapeProfile, ...]:
        """The engine's optimization profiles."""
        return self.plan.profiles

    @property
    def dims(self) -> list[Bounds]:
        """The named dimensions of each profile."""
        return [profile.dims for profile in self.profiles]

    @property
    def profile_records(self) -> tuple[ProfileRecord, ...]:
        """The profiles as documents have them."""
        return tuple(
            {
                name: InputProfile(bounds.min, bounds.opt, bounds.max, profile.values.get(name))
                for name, bounds in profile.inputs.items()
            }
            for profile in self.profiles
        )

    @property
    def forms(self) -> dict[str, str]:
        """The forms that `--tune` chose, or the builder takes, by node."""
        return {**{choice.node: choice.form for choice in self.tuned}, **self.respelled}

    @property
    def summary(self) -> PreviousBuild | None:
        """What the next build of this engine will say of it; None where no engine was made."""
        engine = self.engine
        if engine is None or engine.sha256 is None or engine.bytes is None:
            return None
        codes = tuple(dict.fromkeys(finding.code for finding in self.findings))
        layers = None if self.layers is None else len(self.layers.layers) + self.layers.left
        error = None if self.proof is None else self.proof.max_relative_error
        dims = tuple(self.dims)
        return PreviousBuild(self.trtconv, engine.sha256, engine.bytes, dims, layers, len(self.edits), codes, error)

    def contradiction(self, *, selected: bool = False) -> str:
        """Returns what no build can have told of itself; nothing where there is no such thing.

        Args:
            selected: Whether findings were left out without a word, by `--select`.
        """
        proof = self.proof
        if proof is None:
            return ""
        if not 0 <= proof.pieces.proven <= proof.pieces.of:
            return f"{proof.pieces.proven} pieces are proven, of {proof.pieces.of}"
        codes = {finding.code for finding in (*self.findings, *(entry.finding for entry in self.ignored))}
        if proof.agrees is False and not selected and NETWORK_DIFFERS.code not in codes:
            return "the proof found a difference, and no finding tells of it"
        return ""

    def to_json(self) -> dict[str, object]:
        """Returns the report as plain JSON values, with the checksum of all of them."""
        # To read all of the code takes a while, which a build has while TensorRT builds.
        document = strict({**Document.to_json(self), "source": self.source or source_checksum()})
        return {**document, CHECKSUM: checksum(document)}

    @classmethod
    def from_json(cls, value: Any) -> BuildReport:
        """Reads a report."""
        report = cls(**fields_of(cls, value))
        profiles = decoded(_BuiltProfiles, value)
        if report.runtime.family not in FAMILIES:
            raise Fault(f"{report.runtime.family!r} is not one of {', '.join(FAMILIES)}", ["family", "runtime"])
        return dataclasses.replace(report, plan=dataclasses.replace(report.plan, profiles=profiles.together()))


@frozen
class _BuiltProfiles:
    """The profiles of a report, which tells of shapes and of named dimensions apart."""

    profiles: tuple[ProfileRecord, ...]
    dims: tuple[Mapping[str, Range], ...]

    def together(self) -> tuple[ShapeProfile, ...]:
        """Returns the profiles.

        Raises:
            Fault: They are not all of the same inputs, with as many sizes in min, opt and max.
        """
        if len(self.profiles) != len(self.dims):
            raise Fault(f"it has not as many entries as 'profiles' ({len(self.profiles)})", ["dims"])
        for number, profile in enumerate(self.profiles):
            if _ranks(profile) != _ranks(self.profiles[0]) or None in _ranks(profile).values():
                raise Fault("its inputs have not as many sizes everywhere", [number, "profiles"])
        return tuple(
            ShapeProfile(
                {name: InputRange(bounds.min, bounds.opt, bounds.max) for name, bounds in profile.items()},
                dims,
                {name: bounds.values for name, bounds in profile.items() if bounds.values is not None},
            )
            for profile, dims in zip(self.profiles, self.dims, strict=True)
        )


def _ranks(profile: ProfileRecord) -> dict[str, int | None]:
    """Returns the number of dimensions of each input; None where min, opt and max differ in it."""
    lengths = {name: {len(bounds.min), len(bounds.opt), len(bounds.max)} for name, bounds in profile.items()}
    return {name: ranks.pop() if len(ranks) == 1 else None for name, ranks in lengths.items()}
