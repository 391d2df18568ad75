"""The sizes and inputs that an engine is tried with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range, Shape, ShapeProfile
from trtconv.core.frozen import frozen
from trtconv.engine.profiles import PICKS, shapes_at
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.inputs import Feeds, call_generator, checked_inputs, load_generator
from trtconv.runtimes.onnxruntime import numpy_type, random_feeds
from trtconv.runtimes.proof.places import apart
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.points import accepted_points


@frozen
class Case:
    """One run of an engine.

    Args:
        profile: Index of the optimization profile.
        size: "min", "opt", "max", "random 1", or "inputs".
        shapes: Input name to its shape.
        seed: Of its inputs.
        values: Inputs whose elements are given: those that hold shapes, or all that the user gave.
    """

    profile: int
    size: str
    shapes: Mapping[str, Shape]
    seed: int = 0
    values: Mapping[str, NDArray[Any]] = dataclasses.field(default_factory=dict)


def cases_of_profiles(
    model: OnnxModel, profiles: Sequence[ShapeProfile], *, random: int = 0, seed: int = 0
) -> list[Case]:
    """Returns min, opt and max of each profile, and random sizes that the network accepts; each size once a profile."""
    cases: list[Case] = []
    sizes = Sizes(model) if random else None
    for index, profile in enumerate(profiles):
        by_pick: dict[str, Mapping[str, Shape]] = {}
        for pick in PICKS:
            if shapes_at(profile, pick) not in by_pick.values() or profile.values:
                by_pick[pick] = shapes_at(profile, pick)
        if sizes is not None and sizes.names:
            points = accepted_points(sizes, profile, seed + index)
            shapes_of = [shapes_of_point(model, profile, point) for point in points]
            others = [shapes for shapes in shapes_of if shapes not in by_pick.values()]
            by_pick |= {f"random {n}": shapes for n, shapes in enumerate(others[:random], start=1)}
        for size, shapes in by_pick.items():
            cases.append(Case(index, size, shapes, seed + len(cases), values_at(model, profile, size)))
    return cases


def shapes_of_point(model: OnnxModel, profile: ShapeProfile, point: Mapping[str, int]) -> dict[str, Shape]:
    """Returns the shapes of inputs whose dimensions have these sizes."""
    fixed = make_profile(model.inputs, {name: Range(n, n, n) for name, n in point.items()}, profile.values)
    return shapes_at(fixed, "opt")


def values_at(model: OnnxModel, profile: ShapeProfile, size: str) -> dict[str, NDArray[Any]]:
    """Returns the elements of inputs that hold shapes; random sizes take those of opt."""
    pick = size if size in PICKS else "opt"
    specs = {spec.name: spec for spec in model.inputs}
    return {
        name: np.array(getattr(bounds, pick), numpy_type(specs[name])).reshape(getattr(profile.inputs[name], pick))
        for name, bounds in profile.values.items()
    }


def make_feeds(model: OnnxModel, case: Case, generator: str | None) -> Feeds:
    """Returns the inputs of a case.

    Raises:
        InputError: The user's generator fails, or its inputs do not fit.
    """
    feeds = apart(model, random_feeds(model.inputs, case.shapes, case.seed), case.seed)
    if generator is not None:
        inputs = call_generator(load_generator(generator), generator, case.shapes, case.seed)
        feeds = checked_inputs(model.inputs, inputs, generator, case.shapes)
    return {**feeds, **case.values}
