"""What an engine must agree with itself on, whatever its model: no reference is needed.

Twice the same is the same; equal rows of a batch give equal rows, where the model's do (its first axis may be time);
a size that two profiles have gives the same in both.
A miscompilation that depends on where a row lies, or on which kernel a profile chose, shows without a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.verify import Difference, Disagreement, Tolerance
from trtconv.engine.runs import CannotRun
from trtconv.runtimes.compare import compare

Feeds = dict[str, NDArray[Any]]
RunAt = Callable[[int, Feeds], Mapping[str, Any]]
"""Runs an engine with an optimization profile and inputs, and returns its outputs."""


def self_check(
    run: RunAt, profile: int, feeds: Feeds, tolerance: Tolerance, reference: RunAt | None = None
) -> list[Disagreement]:
    """Runs one size twice, and once with equal rows.

    Args:
        run: The engine.
        profile: Index of the optimization profile.
        feeds: Inputs at a size of that profile.
        tolerance: How far equal results may be apart: kernels may add in another order.
        reference: Runs the model; rows are compared only of outputs whose rows are equal there. None: of all.

    Returns:
        Where it disagrees; empty where it does not.
    """
    first = run(profile, feeds)
    disagreements = _differing("twice", first, run(profile, feeds), tolerance)
    equal = with_equal_rows(feeds)
    if equal is None:
        return disagreements
    try:
        expected = None if reference is None else reference(profile, equal)
    except CannotRun:
        return disagreements
    rows = batch_of(feeds)
    for name, values in run(profile, equal).items():
        if expected is None or _differing_rows(name, expected.get(name), rows, tolerance) == []:
            disagreements += _differing_rows(name, values, rows, tolerance) or []
    return disagreements


def _differing_rows(name: str, values: Any, rows: int, tolerance: Tolerance) -> list[Disagreement] | None:
    """Returns where the rows of an output are not all the first; None where it has not as many."""
    if not isinstance(values, np.ndarray) or not values.ndim or values.shape[0] != rows:
        return None
    return _disagreements("rows", [compare(name, np.repeat(values[:1], rows, axis=0), values, tolerance)])


def check_profiles(
    run: RunAt,
    profiles: Sequence[ShapeProfile],
    make: Callable[[Mapping[str, tuple[int, ...]]], Feeds],
    tolerance: Tolerance,
) -> list[Disagreement]:
    """Runs sizes that two profiles have with both.

    Args:
        run: The engine.
        profiles: Its optimization profiles.
        make: Makes inputs of given shapes, the same ones each time.
        tolerance: As in `self_check`.
    """
    disagreements: list[Disagreement] = []
    for index, profile in enumerate(profiles):
        for other in range(index + 1, len(profiles)):
            shapes = shared_shapes(profile, profiles[other])
            if shapes is not None:
                feeds = make(shapes)
                disagreements += _differing("profiles", run(index, feeds), run(other, feeds), tolerance)
    return disagreements


def shared_shapes(one: ShapeProfile, two: ShapeProfile) -> dict[str, tuple[int, ...]] | None:
    """Returns a bound of one profile that lies in the other too, None where there is none."""
    for pick, source, target in (("max", one, two), ("min", two, one), ("opt", one, two), ("opt", two, one)):
        shapes = {name: tuple(getattr(bounds, pick)) for name, bounds in source.inputs.items()}
        if all(_is_within(shape, target.inputs[name]) for name, shape in shapes.items()):
            return shapes
    return None


def _is_within(shape: Sequence[int], bounds: Any) -> bool:
    return all(low <= size <= high for low, size, high in zip(bounds.min, shape, bounds.max, strict=True))


def batch_of(feeds: Feeds) -> int:
    """Returns the size of the first axis where all inputs have the same, else 1."""
    sizes = {values.shape[0] if values.ndim else 1 for values in feeds.values()}
    return sizes.pop() if len(sizes) == 1 else 1


def with_equal_rows(feeds: Feeds) -> Feeds | None:
    """Returns inputs whose rows are all the first one; None where there is only one."""
    rows = batch_of(feeds)
    if rows < 2:
        return None
    return {name: np.repeat(values[:1], rows, axis=0) for name, values in feeds.items()}


def _differing(check: str, one: Mapping[str, Any], two: Mapping[str, Any], tolerance: Tolerance) -> list[Disagreement]:
    return _disagreements(check, [compare(name, values, two.get(name), tolerance) for name, values in one.items()])


def _disagreements(check: str, differences: Sequence[Difference]) -> list[Disagreement]:
    return [
        Disagreement(check, difference.name, difference.why) for difference in differences if difference.verdict.refutes
    ]
