"""An engine's optimization profiles and inputs: from its report, or from itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtconv.core.bounds import make_profile
from trtconv.core.dims import InputRange, InputSpec, Range, Shape, ShapeProfile, times
from trtconv.core.errors import InputError
from trtconv.core.requests.base import Bounds
from trtconv.engine.opening import EngineFile
from trtconv.runtimes.tensorrt import Engine

PICKS = ("min", "opt", "max")


def inputs_of(subject: EngineFile, engine: Engine) -> tuple[InputSpec, ...]:
    """Returns the inputs of an engine; without a report, dynamic dimensions are named INPUT:AXIS."""
    if subject.report is not None and subject.report.inputs:
        return subject.report.inputs
    return tuple(
        InputSpec(t.name, t.dtype, tuple(f"{t.name}:{axis}" if n < 0 else n for axis, n in enumerate(t.shape)))
        for t in engine.tensors
        if t.kind == "input"
    )


def profiles_of(subject: EngineFile, engine: Engine, inputs: Sequence[InputSpec]) -> tuple[ShapeProfile, ...]:
    """Returns the profiles of an engine."""
    if subject.report is not None:
        return subject.report.profiles
    return tuple(named(inputs, shapes) for shapes in engine.profiles)


def named(inputs: Sequence[InputSpec], shapes: Mapping[str, InputRange]) -> ShapeProfile:
    """Returns a profile that an engine tells of, with names for its dimensions.

    Raises:
        InputError: It has other inputs than these.
    """
    dims: dict[str, Range] = {}
    for spec in inputs:
        if spec.name not in shapes or len(shapes[spec.name].min) != len(spec.dims):
            raise InputError(
                f"the engine has no input {spec}, which the model has",
                f"It has {', '.join(shapes) or 'none'}: it was built from another model.",
            )
        bounds = shapes[spec.name]
        for axis, dim in enumerate(spec.dims):
            if isinstance(dim, str):
                dims[dim] = Range(bounds.min[axis], bounds.opt[axis], bounds.max[axis])
    return ShapeProfile({spec.name: shapes[spec.name] for spec in inputs}, dims)


def shapes_at(profile: ShapeProfile, pick: str) -> dict[str, Shape]:
    """Returns the shape of every input at "min", "opt" or "max"."""
    return {name: getattr(shapes, pick) for name, shapes in profile.inputs.items()}


def narrowed(
    inputs: Sequence[InputSpec], profiles: Sequence[ShapeProfile], dims: Bounds
) -> list[tuple[int, ShapeProfile]]:
    """Returns profiles cut to the bounds that a user gave, with their indices; without bounds, all as they are.

    Raises:
        InputError: There is no such dimension, or no profile contains the bounds.
    """
    if not dims:
        return list(enumerate(profiles))
    cuts = []
    for index, profile in enumerate(profiles):
        free = {name: bound for name, bound in profile.dims.items() if name not in dims}
        try:
            cut = make_profile(inputs, {**free, **dims}, profile.values)
        except InputError:
            # A dimension that is computed from one that was given, or given by another name.
            cut = make_profile(inputs, dims, profile.values)
        if profile.contains(shapes_at(cut, "min")) and profile.contains(shapes_at(cut, "max")):
            cuts.append((index, cut))
    if not cuts:
        raise _outside(", ".join(f"{name}={bound}" for name, bound in dims.items()), profiles)
    return cuts


def profile_for(profiles: Sequence[ShapeProfile], shapes: Mapping[str, Shape]) -> int:
    """Returns the index of the first profile that contains some shapes.

    Raises:
        InputError: None does.
    """
    for index, profile in enumerate(profiles):
        if profile.contains(shapes):
            return index
    raise _outside(", ".join(f"{name} {times(shape)}" for name, shape in shapes.items()), profiles)


def _outside(sizes: str, profiles: Sequence[ShapeProfile]) -> InputError:
    choices = "; ".join(
        ", ".join(f"{name} {times(r.min)} to {times(r.max)}" for name, r in profile.inputs.items())
        for profile in profiles
    )
    return InputError(f"no profile of the engine contains {sizes}", f"The profiles are {choices or 'none'}.")
