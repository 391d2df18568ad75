"""The profiles that a request asks for, checked against the size lattice and divided."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from trtconv.core.bounds import bounds_by_name, make_profile
from trtconv.core.dims import Range, ShapeProfile
from trtconv.core.documents.lattice import LatticeRecord
from trtconv.core.documents.memory import Activations
from trtconv.core.errors import InputError
from trtconv.core.findings import Finding, Severity
from trtconv.core.frozen import frozen
from trtconv.core.named_sizes import KnownSizes
from trtconv.graph.model import OnnxModel
from trtconv.rules import run_size_rules
from trtconv.rules.baked_sizes import BakedPixelShuffle, BakedReshape, BakedResize
from trtconv.shapes.lattice import SizeLattice
from trtconv.shapes.profiles import alone, refuse_gaps, rounded_profiles
from trtconv.shapes.split import divide
from trtconv.shapes.view import SizesView


@frozen
class Sized:
    """Profiles after the network had its say.

    Args:
        profiles: What to build.
        lattice: The accepted sizes in their range.
        findings: What is wrong with them.
        notes: What was done and what it costs, in words.
        everywhere: Whether the network accepts every size in the range.
        memory: What the activations take at the max of each profile.
        record: What a report says of the lattice; None where nothing is dynamic.
        view: What they were checked with.
    """

    profiles: tuple[ShapeProfile, ...]
    lattice: SizeLattice
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    everywhere: bool = False
    memory: Sequence[Activations] = ()
    record: LatticeRecord | None = None
    view: SizesView | None = None

    @property
    def tensor_sizes(self) -> KnownSizes | None:
        """The shapes of the model's tensors at opt of the profiles; None where nothing was checked."""
        return None if self.view is None else self.view.tensor_sizes(self.profiles)

    def milder(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Takes sizes that an exporter wrote into the model for harmless where it accepts all that were asked for."""
        baked = {rule.code for rule in (BakedPixelShuffle, BakedResize, BakedReshape)}
        return tuple(
            dataclasses.replace(f, severity=Severity.INFO, fix=_HARMLESS)
            if self.everywhere and f.code in baked and f.severity is Severity.WARNING
            else f
            for f in findings
        )


_HARMLESS = "Nothing at these sizes, all of which the network accepts; for others, export it with dynamic shapes."


def settle(
    model: OnnxModel,
    profiles: Sequence[ShapeProfile],
    *,
    rounded: bool = False,
    split: str | None = None,
    covered: Mapping[str, Range] | None = None,
) -> Sized:
    """Checks profiles against the size lattice, after rounding and splitting them where that was asked for.

    Args:
        model: The model as it will be parsed.
        profiles: What was asked for.
        rounded: Move sizes that the network does not accept to the nearest that it does.
        split: Divide the one profile: a number, or "auto".
        covered: Bounds that the profiles together are to cover.

    Raises:
        InputError: The split makes no sense: several profiles, nothing that ranges, or finer than the lattice; or
            the profiles do not cover what was asked.
    """
    view = SizesView(model, profiles)
    notes: list[str] = []
    current = tuple(profiles)
    if rounded and any(single := [alone(view, number) for number in range(len(current))]):
        current = tuple(map(functools.partial(_narrowed, model, notes), current, single))
        view = SizesView(model, current)
    if rounded and any(fault is not None for fault in view.faults) and all(t.rows for t in view.lattice.tables):
        current = tuple(rounded_profiles(model.inputs, profile, view.lattice, notes) for profile in current)
        view = SizesView(model, current)
    findings = run_size_rules(view)
    fitting = not any(fault is not None for fault in view.faults)
    if split is not None and fitting:
        current, note = divide(model.inputs, _only(current), view.lattice, split)
        notes += [note] if note else []
    if covered and fitting:
        refuse_gaps(view, current, bounds_by_name(model.inputs, covered))
    lattice = view.lattice
    everywhere = fitting and lattice.exact and all(dim.valid is None for dim in lattice.dims.values())
    return Sized(current, lattice, findings, tuple(notes), everywhere, view.memory, view.record, view)


def _narrowed(model: OnnxModel, notes: list[str], profile: ShapeProfile, single: Mapping[str, Range]) -> ShapeProfile:
    notes += [
        f"{name}={profile.dims[name]} rounded to {bound.opt}: no ends go together" for name, bound in single.items()
    ]
    return make_profile(model.inputs, {**profile.dims, **single}, profile.values)


def _only(profiles: Sequence[ShapeProfile]) -> ShapeProfile:
    if len(profiles) != 1:
        raise InputError(
            f"--split divides one profile, and {len(profiles)} are given", "Leave out --profile, or --split."
        )
    return profiles[0]
