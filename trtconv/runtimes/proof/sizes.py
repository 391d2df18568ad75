"""At which sizes, and on inputs of which magnitude, a whole network is compared with its model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trtconv.core.dims import InputSpec, Shape, ShapeProfile, elements_of
from trtconv.graph.model import OnnxModel

if TYPE_CHECKING:
    from trtconv.runtimes.proof.whole import Size

_MOST_SIZES = 10
"""That are tried of a model without bounds."""
_MOST_ELEMENTS = 1 << 22
"""Of all inputs together, at sizes that nobody asked for."""
_LEAST, _LEAST_OF_MANY = (9, 5, 3, 1), (5, 3, 1)
"""The smallest of the other sizes, for windows are rarely larger; where three of them and more are multiplied; and
where a network multiplies too much even so."""
_MULTIPLES = (8, 16, 32, 64)
"""Of which other sizes are multiples, where a network takes no odd ones."""
_BATCH = 2
_UNBOUNDED = 1 << 16


def proof_sizes(
    model: OnnxModel, profiles: Sequence[ShapeProfile], level: str, sample: Mapping[str, Any], magnitude: float
) -> list[Size]:
    """Returns the sizes that count, the most telling first, and others besides.

    Args:
        model: The model.
        profiles: Where its sizes lie; none where they are not known.
        level: "quick": at the smallest of the first profile; others: at min, opt and max of each.
        sample: Inputs, by name, that values are to be taken from.
        magnitude: Of the floats of the inputs at the other sizes.
    """
    counting = list(_profile_sizes(profiles, level, sample) if profiles else _guessed(model))
    return [*counting, *_others(model, counting, profiles, sample, 1.0 if sample else magnitude)]


def _profile_sizes(profiles: Sequence[ShapeProfile], level: str, sample: Mapping[str, Any]) -> Iterator[Size]:
    from trtconv.runtimes.inputs import resized
    from trtconv.runtimes.proof.whole import Size

    pairs: list[tuple[dict[str, object], dict[str, object]]] = []
    for number, profile in enumerate(profiles[:1] if level == "quick" else profiles):
        for pick in ("min",) if level == "quick" else ("min", "opt", "max"):
            name = pick if len(profiles) == 1 else f"{pick} of profile {number}"
            shapes = {key: getattr(bounds, pick) for key, bounds in profile.inputs.items()}
            values = {key: getattr(bounds, pick) for key, bounds in profile.values.items()}
            if (shapes, values) not in pairs:
                pairs.append((shapes, values))
                yield Size(name, shapes, {**resized(sample, shapes), **values})


def _guessed(model: OnnxModel) -> Iterator[Size]:
    """Yields sizes that a model without bounds may take."""
    from trtconv.runtimes.assumed import assumed_shapes
    from trtconv.runtimes.proof.whole import Size

    for shapes in itertools.islice(assumed_shapes(model, batches=(1,)), _MOST_SIZES):
        if elements_of(shapes) <= _MOST_ELEMENTS:
            yield Size("x".join(map(str, next(iter(shapes.values()), ()))), shapes, group="assumed")


def _others(
    model: OnnxModel,
    counting: Sequence[Size],
    profiles: Sequence[ShapeProfile],
    sample: Mapping[str, Any],
    magnitude: float,
) -> Iterator[Size]:
    """Yields sizes that differ from one another and are odd, or multiples of few numbers, and where there are none the
    first again; the first that the model takes is compared. Those that cost little come first."""
    from trtconv.runtimes.assumed import Cost
    from trtconv.runtimes.inputs import resized
    from trtconv.runtimes.proof.whole import Size

    if not counting or (profiles and profiles[0].values):
        return
    inputs = model.inputs
    many = len({dim for spec in inputs for dim in spec.dims[1:] if isinstance(dim, str)}) > 2
    leasts = _LEAST_OF_MANY if many else _LEAST
    ways = [*((least, 1) for least in leasts), *((leasts[0], multiple) for multiple in _MULTIPLES)]
    candidates: list[dict[str, Shape]] = []
    for least, multiple in ways:
        shapes = _shapes(inputs, profiles[:1], least, multiple)
        if shapes not in candidates and elements_of(shapes) <= _MOST_ELEMENTS:
            candidates.append(shapes)
    # As above.
    cost = Cost.of(model) if len(candidates) > 1 else Cost()
    dear = [candidate for candidate in candidates if not cost.is_low(candidate)]
    for shapes in (*(candidate for candidate in candidates if candidate not in dear), *sorted(dear, key=elements_of)):
        name = "x".join(map(str, next(iter(shapes.values()), ())))
        yield Size(name, shapes, resized(sample, shapes), "besides", True, magnitude)


def _shapes(
    inputs: Sequence[InputSpec], profiles: Sequence[ShapeProfile], smallest: int, multiple: int
) -> dict[str, Shape]:
    """Returns shapes within the bounds, of which no two dimensions are alike if that can be.

    Args:
        inputs: The inputs.
        profiles: The bounds, where there are any.
        smallest: What a size should not fall below.
        multiple: Of what it is one.
    """
    sizes: dict[str, int] = {}
    number = 0
    shapes: dict[str, Shape] = {}
    for spec in inputs:
        shape = []
        for axis, dim in enumerate(spec.dims):
            low, high = (1, _UNBOUNDED) if not isinstance(dim, int) else (dim, dim)
            for profile in profiles:
                bounds = profile.inputs[spec.name]
                low, high = bounds.min[axis], bounds.max[axis]
            name = dim if isinstance(dim, str) else f"{spec.name}:{axis}"
            if name not in sizes:
                least = max(low, smallest)
                sizes[name] = low if low == high else _size((low, least, high), multiple, number, axis == 0)
                number += sizes[name] > _BATCH
            shape.append(min(sizes[name], high))
        shapes[spec.name] = tuple(shape)
    return shapes


def _size(bounds: tuple[int, int, int], multiple: int, number: int, first: bool) -> int:
    """Returns a size between bounds, of which the middle one is what it should not fall below: of a first axis, which
    often counts samples, a small one."""
    low, least, high = bounds
    if first:
        return min(high, max(low, _BATCH))
    size = (least | 1) + 2 * number if multiple == 1 else multiple * (-(-least // multiple) + number)
    return min(high, size)
